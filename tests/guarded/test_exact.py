"""A training that cannot be resumed exactly says so before it goes on, and does what the settings ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from .runs import Guard, Guarded

pytestmark = pytest.mark.tf
OFTEN = ("--checkpoint-every", "0", "--checkpoint-cost", "1")
# Batches that no seed brings back, and a kill in the second epoch, once.
SCRIPT = """
import os, signal
import keras, numpy as np, tensorflow as tf
def rows():
    for _ in range(64):
        yield np.frombuffer(os.urandom(4), "uint8").astype("float32") / 255
data = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((4,), tf.float32))
data = data.map(lambda row: (row, tf.reduce_sum(row, keepdims=True))).batch(8)
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        if self.epoch == 1 and batch == 5 and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(data, epochs=3, verbose=0, callbacks=[Killed()])
print("epochs", history.epoch, len(history.history["loss"]))
"""


def killed_once(guard: Guard, folder: Path, *words: str) -> Guarded:
    (folder / "train.py").write_text(SCRIPT)
    return guard(folder / "home", *OFTEN, *words, "train.py", cwd=folder)


def notes(run: Guarded) -> list[str]:
    return [facts["text"] for facts in run.announced("attempt.inexact")]


def test_data_of_another_order_are_trained_from_the_beginning_of_their_epoch(
    guard_keras: Guard, tmp_path: Path
) -> None:
    run = killed_once(guard_keras, tmp_path)

    assert run.code == 0, run.err
    (said,) = notes(run)
    assert said.startswith("fit 1 goes back to the beginning of epoch 2, because the data come in another order")
    assert "a generator of the script made it" in said
    assert said.endswith("again")  # how many batches are trained a second time
    assert "seed" not in said, "no source without a seed was seen: a file can have been edited"
    assert run.err.count("resuming from") == 0, "one sentence for one resume"
    assert said in run.err
    assert b"epochs [0, 1, 2] 3" in run.out


def test_a_user_can_go_on_with_other_data_and_the_report_says_so(guard_keras: Guard, tmp_path: Path) -> None:
    run = killed_once(guard_keras, tmp_path, "--inexact", "continue")

    assert run.code == 0, run.err
    (said,) = notes(run)
    assert said.startswith("fit 1 goes on as it is, though the data come in another order")
    assert run.err.count("resuming from") == said.count("resuming from") == 1
    assert b"epochs [0, 1, 2] 3" in run.out


def test_who_wants_an_exact_resume_or_none_gets_none(guard_keras: Guard, tmp_path: Path) -> None:
    run = killed_once(guard_keras, tmp_path, "--inexact", "stop")

    assert run.code == 124, run.err
    (said,) = notes(run)
    assert said.startswith("fit 1 cannot go on exactly, because the data come in another order")
    assert run.outcome()["attempts"] == 2
    assert b"epochs" not in run.out

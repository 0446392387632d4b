"""What a pipeline writes to a file is there once, although a resume draws its batches again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from stallguard.probe.checkpoint.written_files import WrittenFiles
from tests.probe.checkpoint.restarts import Restarts


def test_a_line_that_a_thread_writes_while_its_file_is_shortened_leaves_no_null_bytes(tmp_path, monkeypatch):
    path = str(tmp_path / "log.txt")
    number = os.open(path, os.O_WRONLY | os.O_CREAT)
    truncate = os.truncate

    def and_a_line(path, size):
        truncate(path, size)
        os.write(number, b"6\n")  # of the input pipeline's thread

    monkeypatch.setattr(os, "truncate", and_a_line)
    try:
        os.write(number, b"0\n1\n2\n3\n4\n5\n")
        WrittenFiles(str(tmp_path / "copies"))._shorten(path, 4, number, [])
        os.write(number, b"7\n")
        os.lseek(number, 0, os.SEEK_SET)
        os.write(number, b"8")  # it does not append for ever
    finally:
        os.close(number)
    assert Path(path).read_bytes() == b"8\n1\n6\n7\n"


PIPELINE = """
import os, signal, sys
import keras, numpy as np
log = open("log.txt", "w", buffering=1)
descriptor = os.open("descriptor.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
def row(n):
    log.write("%d\\n" % n)
    os.write(descriptor, b"%d\\n" % n)
    with open("each_time.txt", "a") as file:
        file.write("%d\\n" % n)
    return np.full(4, n, "float32"), np.ones(1, "float32")
def batches():
    while True:
        for n in range(0, 8, 2):
            yield tuple(map(np.stack, zip(row(n), row(n + 1))))
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        log.write("epoch %d\\n" % epoch)
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
if os.environ["KERAS_BACKEND"] == "tensorflow":
    import tensorflow as tf
    specs = tf.TensorSpec((4,)), tf.TensorSpec((1,))
    data = tf.data.Dataset.from_generator(lambda: map(row, range(8)), output_signature=specs).batch(2).prefetch(1)
    steps = None
else:
    data, steps = batches(), 4
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(data, epochs=3, steps_per_epoch=steps, verbose=0, callbacks=[Killed()])
"""


@pytest.mark.tf
@pytest.mark.parametrize(
    ("backend", "kills"),
    [("torch", ["0,2"]), ("torch", ["1,1"]), ("torch", ["2,0", "2,2"]), ("tensorflow", ["1,2"])],
)
def test_lines_that_the_pipeline_writes_are_there_once_although_its_batches_are_drawn_again(
    receiver, tmp_path, other_python, backend, kills
):
    found = []
    for name in ("plain", "killed"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(PIPELINE)
        interpreter = sys.executable if backend == "tensorflow" else other_python(backend)
        script = Restarts(receiver, folder, folder / "train.py", interpreter, KERAS_BACKEND=backend)
        for number, kill in enumerate([*kills, ""] if name == "killed" else [""]):
            last = script.attempt(kill=kill, resume=number > 0, guarded=name == "killed")
        found.append({path.name: path.read_text() for path in folder.glob("*.txt")})
    assert len(found[0]) == 3
    assert not any("not restored" in text for text in last.notes())
    if backend == "tensorflow":  # how far it is ahead depends on time
        (sentence,) = last.notes("inexact")
        assert sentence.endswith("to descriptor.txt, each_time.txt, log.txt can come twice or be missing")
        assert {path: set(text.split()) for path, text in found[1].items()} == {
            path: set(text.split()) for path, text in found[0].items()
        }
    else:
        assert last.notes("inexact") == []
        assert found[1] == found[0]

"""A resume is said in one sentence, when it is known how the fit goes on, and it blames nothing that was not seen."""

from __future__ import annotations

import sys

import pytest

from .restarts import Restarts

pytestmark = pytest.mark.tf
# The rows are those of a file, as of the attempt: a file that is edited between two attempts.
SCRIPT = """
import importlib, json, os, queue, signal
import keras, numpy as np
keras.utils.set_random_seed(3)
rows = np.load("rows.npy")
if os.environ.get("FULL"):
    importlib.import_module("_stallguard_probe.checkpoint.generations").SPARE = 1 << 62
class Killed(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
        if os.environ.get("UNKEPT"):
            self.rows = (row for row in [epoch])  # a running generator
    lines = None
    if os.environ.get("UNREADABLE"):
        lines = queue.SimpleQueue()
    def on_train_batch_end(self, batch, logs=None):
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
history = model.fit(rows, rows.sum(1), 8, epochs=3, verbose=0, callbacks=[Killed()])
print(json.dumps([history.epoch, history.history["loss"]]))
"""


@pytest.fixture
def run(receiver, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    write_rows(tmp_path, 1.0)
    return Restarts(receiver, tmp_path, tmp_path / "train.py", sys.executable)


def write_rows(folder, scale):
    numpy = pytest.importorskip("numpy")
    numpy.save(folder / "rows.npy", numpy.linspace(0, scale, 256, dtype="float32").reshape(64, 4))


def said(attempt):
    """Return (kind, text) of each note on the resume."""
    return [(one["kind"], one["text"]) for one in attempt.heartbeat.notes if one["kind"] in ("resume", "inexact")]


def test_an_exact_resume_says_where_it_goes_on(run):
    run.attempt(kill="1,4")
    ((kind, text),) = said(run.attempt(resume=True))

    assert kind == "resume"
    assert text.startswith("resuming from the ")
    assert text.endswith("checkpoint (epoch 2, batch 4)")


def test_other_arguments_are_another_training_and_that_is_said(run):
    run.attempt("--at=18:30", kill="1,4")
    other = run.attempt("--at=18:31", resume=True)

    ((kind, text),) = said(other)
    assert kind == "inexact"
    assert "begins at its beginning" in text
    assert "with other arguments" in text


def test_an_edited_file_is_no_source_without_a_seed(run, tmp_path):
    run.attempt(kill="1,4")
    write_rows(tmp_path, 2.0)
    ((kind, text),) = said(run.attempt(resume=True))

    assert kind == "inexact"
    assert text.startswith("fit 1 goes back to the beginning of epoch 2, because the data come in another order")
    assert "seed" not in text


def test_all_that_is_not_as_before_is_in_the_one_sentence(run, tmp_path):
    run.attempt(kill="1,4")
    write_rows(tmp_path, 2.0)
    script = tmp_path / "train.py"
    script.write_text(script.read_text() + "# edited\n")
    ((kind, text),) = said(run.attempt(resume=True, checkpoint_inexact="continue"))

    assert kind == "inexact"
    parts = ("the script has changed", "fit 1 goes on as it is", "resuming from the")
    assert [text.count(part) for part in parts] == [1, 1, 1]


def test_a_damaged_checkpoint_is_said_with_the_one_that_is_used(run):
    run.attempt(kill="1,4")
    newest = max(run.checkpoints.glob("*/*/g*"), key=lambda one: int(one.name[1:]))
    (newest / "tensors.bin").write_bytes(b"")
    ((kind, text),) = said(run.attempt(resume=True))

    assert kind == "resume"
    assert text.startswith("resuming from the ")
    assert text.endswith("is damaged (its tensors do not match their checksum); the previous one is used")


def test_no_previous_one_is_named_if_all_are_damaged(run):
    run.attempt(kill="1,4")
    for one in run.checkpoints.glob("*/*/g*/tensors.bin"):
        one.write_bytes(b"")
    resumed = run.attempt(resume=True)
    ((kind, text),) = said(resumed)

    assert kind == "inexact"
    assert text.startswith("fit 1 starts over: its checkpoint is not used, because checkpoint g")
    assert "previous" not in text
    assert resumed.heartbeat.last()["beats"] == 24


def test_a_full_disk_is_told_before_the_first_batch(run):
    (text,) = run.attempt(kill="0,0", FULL="1", checkpoint_every=3600).notes("unsaved")

    assert text.startswith("no checkpoint can be written (no room for a checkpoint: ")
    assert text.endswith("a kill costs all that is trained from now on: there is none")


def test_a_checkpoint_that_no_resume_can_use_is_told_with_what_a_kill_costs(run):
    first = run.attempt(kill="1,4", UNKEPT="1")
    ((kind, text),) = said(run.attempt(resume=True, UNKEPT="1"))

    (told,) = first.notes("unsaved")
    assert told.startswith("a checkpoint lacks the state of callbacks[0].rows (generator), so it cannot resume")
    assert ": there is none" in told
    assert first.notes("saved") == []
    assert (kind, "lacks the state of callbacks[0].rows" in text) == ("inexact", True)


def test_a_resume_says_of_what_it_cannot_know_whether_it_is_as_it_was(run):
    run.attempt(kill="1,4", UNREADABLE="1")
    ((kind, text),) = said(run.attempt(resume=True, UNREADABLE="1"))
    assert kind == "resume"
    assert text.startswith("resuming from the ")
    assert text.endswith("; not restored, if it has changed: class __main__.Killed.lines (SimpleQueue)")

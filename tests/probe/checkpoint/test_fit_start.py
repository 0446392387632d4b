"""A fit that an earlier attempt finished is skipped if it starts as it did then, and trained again, said, if not."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from stallguard.probe.checkpoint import announcements, fit_start

from .restarts import Restarts

CHILD = Path(__file__).parent / "children" / "finished.py"
SETTINGS = {"seed": 3, "order": ["a", "b"], "rate": 0.1, "batch": 8, "patience": 1, "weight": 1.0, "unbuilt": False}
FIRST, KILL = (0, 0, 0), "1,1,2"


class Trainings:
    """A script's folder: its settings and data, and the checkpoints of an attempt that was killed in the second fit."""

    def __init__(self, receiver, folder, interpreter, **environment):
        self.folder = folder
        self.script = folder / "train.py"
        self.script.write_text(CHILD.read_text())
        self.run = Restarts(receiver, folder, self.script, interpreter, **environment)
        self.put()

    def put(self, **settings):
        """Write settings and data anew; `rows`, a dict, changes values of the file a: {(row, column): value}."""
        changed = settings.pop("rows", {})
        (self.folder / "settings.json").write_text(json.dumps({**SETTINGS, **settings}))
        for name, factor in (("a", 1), ("b", -1)):
            x = np.random.default_rng(5).random((48, 4))
            rows = np.concatenate([x, factor * x.sum(1, keepdims=True)], 1).astype("float32")
            for place, value in changed.items() if name == "a" else ():
                rows[place] = value
            np.save(self.folder / f"{name}.npy", rows)
            np.savetxt(self.folder / f"{name}.csv", rows, "%.5f", ",")

    def kill(self, **settings):
        """Train with these settings until the second fit."""
        self.put(**settings)
        shutil.rmtree(self.run.checkpoints, ignore_errors=True)
        self.run.attempt(kill=KILL)
        shutil.copytree(self.run.checkpoints, self.folder / "kept", dirs_exist_ok=True)

    def resume(self, **settings):
        """Return the attempt that resumes with these settings what `kill` began."""
        self.put(**settings)
        shutil.rmtree(self.run.checkpoints)
        shutil.copytree(self.folder / "kept", self.run.checkpoints)
        return self.run.attempt(resume=True)


@pytest.fixture
def trainings(receiver, tmp_path, other_python):
    """Return a function that makes the script's folder for a framework."""

    def make(name, data):
        interpreter = sys.executable if name == "tensorflow" else other_python(name)
        backend = name if name in ("torch", "jax") else "tensorflow"
        return Trainings(receiver, tmp_path, interpreter, KERAS_BACKEND=backend, DATA=data)

    return make


def begun(attempt):
    """Return where an attempt began to train."""
    return attempt.trained[0]


OTHER_VALUES = announcements.OTHER_VALUES % "its model"
INNER = {(40, 2): 9.0}  # in the last batch
# Data, what is set anew, what is said.
CASES = [
    ("arrays", {"order": ["b", "a"]}, "its data (y)"),
    ("arrays", {"rows": INNER}, "its data (x)"),
    ("arrays", {"seed": 4}, OTHER_VALUES),
    ("arrays", {"rate": 0.01}, "the learning rate is 0.01 now and was 0.1"),
    ("arrays", {"batch": 16}, "the arguments of fit differ: batch_size 16, was 8"),
    ("arrays", {"patience": 2}, "(ReduceLROnPlateau.patience)"),
    ("arrays", {"weight": 2.0}, "(global __main__.WEIGHT)"),
]


@pytest.mark.tf
def test_a_fit_that_starts_otherwise_is_trained_again(trainings):
    run = trainings("tensorflow", "arrays")
    run.kill()
    for _, settings, said in CASES:
        resumed = run.resume(**settings)
        assert begun(resumed) == FIRST, settings
        (sentence,) = resumed.notes("inexact")
        assert sentence.startswith("fit 1 is trained again: ")
        assert said in sentence
        assert resumed.rows == run.run.attempt(guarded=False).rows


@pytest.mark.parametrize(
    ("name", "data", "edited", "said"),
    [
        ("tensorflow", "csv", INNER, "its data (x)"),
        ("tensorflow", "tfrecord", INNER, "its data (x)"),
        ("tensorflow", "generator", {(2, 1): 9.0}, announcements.OTHER_FIRST),
        ("tensorflow", "object", INNER, "its data (x)"),
        ("keras2", "arrays", INNER, "its data (x)"),
        ("keras2", "generator", {(2, 1): 9.0}, announcements.OTHER_FIRST),
        ("torch", "object", INNER, "its data (x)"),
        ("torch", "generator", {(2, 1): 9.0}, announcements.OTHER_FIRST),
        ("jax", "arrays", INNER, "its data (x)"),
        ("jax", "generator", {(2, 1): 9.0}, announcements.OTHER_FIRST),
    ],
)
def test_whatever_gives_the_batches_a_fit_is_skipped_if_they_are_the_same(trainings, name, data, edited, said):
    run = trainings(name, data)
    run.kill()
    kept = run.resume()
    assert begun(kept) == (1, 1, 2)
    assert kept.notes("inexact") == []
    again = run.resume(rows=edited)
    assert begun(again) == FIRST
    assert said in again.notes("inexact")[0]
    assert again.rows == run.run.attempt(guarded=False).rows


@pytest.mark.parametrize("name", ["tensorflow", "keras2", "torch", "jax"])
def test_a_finished_fit_of_a_script_that_seeds_nothing_is_skipped(trainings, name):
    run = trainings(name, "arrays")
    run.kill(seed=None)
    kept = run.resume(seed=None)
    assert begun(kept) == (1, 1, 2)
    assert kept.notes("inexact") == []
    assert kept.notes()[0].endswith(announcements.COMPUTED % "callbacks[0].began")  # a time


def test_only_an_edit_of_what_a_fit_reaches_has_it_trained_again(trainings):
    """With a model that its first batch builds: its first values cannot be read before."""
    run = trainings("keras2", "arrays")
    text = run.script.read_text()
    run.kill(unbuilt=True)
    run.script.write_text("# More lines above\n\n" + text + "print('the end')\n")
    edited = run.resume(unbuilt=True)
    assert begun(edited) == (1, 1, 2)
    assert not any("is trained again" in sentence for sentence in edited.notes("inexact"))

    run.script.write_text(text)
    assert announcements.DRAWN in run.resume(unbuilt=True, seed=4).notes("inexact")[0]
    run.script.write_text(text.replace("(y_true - y_pred) ** 2", "(y_true - y_pred) ** 4"))
    edited = run.resume(unbuilt=True)
    assert begun(edited) == FIRST
    assert announcements.OTHER_CODE % "loss" in edited.notes("inexact")[0]
    assert edited.rows == run.run.attempt(guarded=False).rows


@pytest.mark.tf
def test_a_smaller_batch_that_stallguard_chose_is_no_other_start(trainings):
    run = trainings("tensorflow", "arrays")
    run.kill(batch=16)
    run.put(batch=8)
    resumed = run.run.attempt(resume=True, rows=8)
    assert begun(resumed)[0] == 1, [resumed.notes(), resumed.notes("inexact")]
    assert resumed.notes("inexact") == []


VALUES = {"model": [2, 7, 8]}
START = {
    "values": VALUES, "arguments": {"batch_size": "8"}, "sources": {"x": [["float32", [48, 4], 5, 6]]},
    "code": {"loss": 3}, "words": {"global __main__.WEIGHT": [4, 0]}, "rows": "", "random": "a", "whole": True,
    "partly": 0, "seconds": 2.0,
}  # fmt: skip


def compared(then, now):
    """Return what `difference` finds between two starts."""
    same = {"rate": 0.1, "schedule": None}
    return fit_start.difference({**same, "start": then}, {**same, "start": now})


def test_what_an_earlier_version_did_not_keep_is_not_taken_as_equal():
    assert compared("", START) == announcements.START_UNKNOWN
    assert compared(START, None) == announcements.START_UNKNOWN
    assert not fit_start.same_values("", START)
    for name in START:
        assert compared({key: value for key, value in START.items() if key != name}, START) != ""
    assert compared(START, dict(START)) == ""


def test_what_only_one_start_read_in_full_is_compared_by_some_of_its_values():
    partly = {**START, "values": {"model": [2, 7, ""]}, "sources": {"x": [["float32", [48, 4], 5, ""]]}}
    assert compared(START, partly) == compared(partly, START) == ""
    assert compared(START, {**partly, "values": {"model": [2, 6, ""]}}) == OTHER_VALUES
    assert "(x)" in compared(START, {**partly, "sources": {"x": [["float32", [48, 4], 9, ""]]}})


def test_a_computed_number_that_differs_is_reported_alone():
    timed = {**START, "words": {"global __main__.WEIGHT": [4, 1]}}
    assert compared(START, timed) == ""
    assert fit_start.computed(START, timed) == ["global __main__.WEIGHT"]
    assert fit_start.computed(START, START) == []


@pytest.mark.parametrize(
    "array",
    [np.arange(24.0).reshape(4, 6), np.arange(24.0).reshape(4, 6).T, np.array(["a", "bc"], object), np.float32(3)],
    ids=["rows", "columns", "objects", "scalar"],
)
def test_a_digest_sees_every_value_within_its_seconds(array):
    array = np.asarray(array)
    whole, none = fit_start.Reader(9.0), fit_start.Reader(0.0)
    found = whole.array(array)
    assert whole.whole
    assert found[3] != ""
    assert none.array(array) == [*found[:3], ""]
    assert (none.whole, none.partly) == (False, array.nbytes)
    other = array.copy()
    other.flat[-1] = other.flat[0] * 2 + array.dtype.type(1) if array.dtype.kind == "f" else "z"
    assert fit_start.Reader(9.0).array(other)[3] != found[3]


def test_a_digest_sees_every_byte_of_a_file_within_its_seconds(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(bytes(10_000))
    found = fit_start.Reader(9.0).files([str(path).encode()])
    path.write_bytes(bytes(5000) + b"\1" + bytes(4999))  # between its ends
    (edited,) = fit_start.Reader(9.0).files([str(path).encode()])
    assert edited[:3] == found[0][:3]
    assert edited[3] != found[0][3]
    assert fit_start.Reader(0.0).files([str(path)]) == [[1, "", ""]]
    assert fit_start.Reader(9.0).files([str(path), "no file"]) == []


SET_AT_BEGIN = """
import json, os, sched, signal
import numpy as np
if os.environ["FRAMEWORK"] in ("tensorflow", "keras2"):
    import tensorflow as tf
    keras = tf.keras
else:
    import keras
keras.utils.set_random_seed(3)
TRACE = os.open(os.environ["TRACE"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
rows = np.random.rand(48, 4).astype("float32")
NOTES = {"begun": 0}


class Rows(getattr(keras.utils, "PyDataset", None) or keras.utils.Sequence):
    def __init__(self):
        super().__init__()
        self.is_odd, self.mark = False, ""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.is_odd = not self.is_odd
        part = rows[8 * index : 8 * index + 8]
        return part, part.sum(1, keepdims=True)


class Begins(keras.callbacks.Callback):
    def __init__(self, data, number):
        super().__init__()
        self.data, self.number, self.best = data, number, np.zeros(4)

    def on_train_begin(self, logs=None):
        self.data.mark, self.model.begun = "begun", True
        NOTES["begun"] += 1
        if os.environ.get("SETS") == "scheduler" and self.number == 0:
            self.model.source = sched.scheduler()

    def on_epoch_begin(self, epoch, logs=None):
        self.at = epoch

    def on_train_batch_end(self, batch, logs=None):
        os.write(TRACE, b"%d %d %d\\n" % (self.number, self.at, batch))
        self.best = self.best + 1
        self.best.flags.writeable = False
        if os.environ["KILL"] == f"{self.number},{self.at},{batch}":
            os.kill(os.getpid(), signal.SIGKILL)


for number in range(2):
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.begun = False
    model.compile("sgd", "mse")
    data = Rows()
    begins = Begins(data, number)
    feed = {"x": rows, "y": rows[:, :1], "batch_size": 8} if number else {"x": data, "shuffle": False}
    model.fit(**feed, epochs=2, verbose=0, callbacks=[begins])
    found = [model.get_weights()[0].tolist(), model.begun, data.is_odd, data.mark, NOTES["begun"]]
    print(json.dumps({"fit": number, "found": found, "best": begins.best.tolist(),
                      "fixed": not begins.best.flags.writeable}), flush=True)
"""


@pytest.mark.parametrize("framework", ["tensorflow", "keras2", "torch", "jax"])
def test_a_skipped_fit_leaves_what_its_callbacks_and_its_data_set(receiver, tmp_path, other_python, framework):
    script = tmp_path / "train.py"
    script.write_text(SET_AT_BEGIN)
    python = sys.executable if framework == "tensorflow" else other_python(framework)
    backend = framework if framework in ("torch", "jax") else "tensorflow"
    run = Restarts(receiver, tmp_path, script, python, FRAMEWORK=framework, KERAS_BACKEND=backend)
    plain = run.undisturbed()
    run.attempt(kill="1,0,2")
    resumed = run.attempt(resume=True)
    assert resumed.notes("inexact") == []
    assert begun(resumed) == (1, 0, 2)
    assert resumed.rows == plain.rows
    assert len(plain.rows) == 2


@pytest.mark.tf
def test_what_a_callback_sets_as_a_fit_begins_and_no_checkpoint_can_keep_is_named(receiver, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SET_AT_BEGIN)
    facts = {"FRAMEWORK": "tensorflow", "KERAS_BACKEND": "tensorflow", "SETS": "scheduler"}
    run = Restarts(receiver, tmp_path, script, sys.executable, **facts)
    run.attempt(kill="1,0,2")
    resumed = run.attempt(resume=True)
    said = [*resumed.notes("inexact"), *resumed.notes("resume")]
    assert any("model.source" in text for text in said), said

"""Keras' own callbacks: they do what they do without stallguard, in slices and after a kill too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from stallguard.probe.checkpoint import announcements
from tests.probe.checkpoint.restarts import Restarts

CHILD = Path(__file__).parent / "children" / "callbacks.py"
KINDS = ("best", "plateau")
BEST = ["best-1.weights.h5", "best-2.weights.h5", "best-3.weights.h5"]


def script_in(receiver, tmp_path, name, interpreter, backend="tensorflow"):
    folder = tmp_path / name
    folder.mkdir()
    return Restarts(receiver, folder, CHILD, interpreter, KERAS_BACKEND=backend)


def undisturbed(receiver, tmp_path, interpreter, backend="tensorflow"):
    rows = script_in(receiver, tmp_path, "plain", interpreter, backend).undisturbed(*KINDS).rows
    assert rows[0]["saved"] == BEST  # else the test shows nothing
    assert rows[0]["stopped"][2] == 4
    assert rows[1]["rate"] == pytest.approx(0.05 / 8)
    return rows


def killed_and_resumed(script):
    """Kill it in an epoch that is worse than the best, and where the rate is about to fall; return the rest."""
    script.attempt(*KINDS, kill="0,4,1")
    script.attempt(*KINDS, kill="1,4,2", resume=True)
    return script.attempt(*KINDS, resume=True)


@pytest.mark.tf
def test_slices_change_nothing_that_callbacks_decide(receiver, tmp_path):
    plain = undisturbed(receiver, tmp_path, sys.executable)
    sliced = script_in(receiver, tmp_path, "sliced", sys.executable).attempt(*KINDS, slices=4).rows
    for here, there in zip(sliced, plain, strict=True):
        assert here["history"] == {name: pytest.approx(values, rel=1e-4) for name, values in there["history"].items()}
        assert [len(lines) for lines in here["logged"]] == [len(lines) for lines in there["logged"]]
        numbers = {"history": 0, "weights": 0, "logged": 0}  # slices add up in another order
        assert {**here, **numbers} == {**there, **numbers}


@pytest.mark.tf
def test_after_a_kill_they_remember(receiver, tmp_path):
    plain = undisturbed(receiver, tmp_path, sys.executable)
    assert killed_and_resumed(script_in(receiver, tmp_path, "killed", sys.executable)).rows == plain


@pytest.mark.tf
@pytest.mark.parametrize("kill", ["0,2,1", "0,3,2", "0,5,3"])
def test_a_training_inside_a_callback_does_not_misplace_the_one_around_it(receiver, tmp_path, kill):
    script = script_in(receiver, tmp_path, "killed", sys.executable)
    script.attempt("nested", kill=kill)
    resumed = script.attempt("nested", resume=True)
    _, epoch, batch = (int(word) for word in kill.split(","))
    assert resumed.trained[0] == (0, epoch, batch)  # the save after the batch before is the last
    assert resumed.trained == [(0, *divmod(place, 4)) for place in range(4 * epoch + batch, 8 * 4)]


@pytest.mark.tf
@pytest.mark.parametrize(("name", "backend"), [("keras2", "tensorflow"), ("torch", "torch"), ("jax", "jax")])
def test_they_remember_elsewhere_too(receiver, tmp_path, other_python, name, backend):
    interpreter = other_python(name)
    plain = undisturbed(receiver, tmp_path, interpreter, backend)
    assert killed_and_resumed(script_in(receiver, tmp_path, "killed", interpreter, backend)).rows == plain


@pytest.mark.tf
@pytest.mark.parametrize("name", ["", "keras2"])
@pytest.mark.parametrize("kind", ["board", "own_board", "unbuilt", "mirrored"])
def test_a_training_goes_on_where_it_was(receiver, tmp_path, other_python, name, kind):
    """With TensorBoard, a validation and a log; a model without an input shape; a strategy with one replica."""
    interpreter = other_python(name) if name else sys.executable
    plain = script_in(receiver, tmp_path, "plain", interpreter).undisturbed(kind)
    assert [len(lines) for lines in plain.rows[0]["logged"]] == [32] * (kind == "board")  # else it shows nothing
    script = script_in(receiver, tmp_path, "killed", interpreter)
    script.attempt(kind, kill="0,4,2")
    resumed = script.attempt(kind, resume=True)
    assert resumed.trained[0] == (0, 4, 2)  # the save after the batch before is the last
    assert resumed.notes("inexact") == []
    assert resumed.rows == plain.rows


@pytest.mark.tf
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_a_model_that_its_first_batch_builds_goes_on_elsewhere_too(receiver, tmp_path, other_python, name):
    plain = script_in(receiver, tmp_path, "plain", other_python(name), name).undisturbed("unbuilt")
    script = script_in(receiver, tmp_path, "killed", other_python(name), name)
    script.attempt("unbuilt", kill="0,4,2")
    resumed = script.attempt("unbuilt", resume=True)
    assert resumed.trained[0] == (0, 4, 2)
    assert resumed.rows == plain.rows


@pytest.mark.tf
def test_a_training_that_is_not_saved_says_why_as_it_begins(receiver, tmp_path):
    script = script_in(receiver, tmp_path, "unreadable", sys.executable)
    (note,) = script.attempt("unreadable").notes("unsaved")
    why, cost = note.split("; ")
    assert why == "no checkpoint can be written (RuntimeError: it is closed)"
    assert cost.startswith(("a kill costs all", "a kill now costs all"))
    assert not list(script.checkpoints.glob("*/fit-*/g*"))


@pytest.mark.tf
def test_a_script_with_its_own_backup_is_left_to_it_and_that_is_said(receiver, tmp_path):
    script = script_in(receiver, tmp_path, "own", sys.executable)
    plain = script_in(receiver, tmp_path, "plain", sys.executable).undisturbed("own_backup")
    script.attempt("own_backup", kill="0,4,1")
    resumed = script.attempt("own_backup", resume=True)
    assert resumed.notes("inexact") == [announcements.OWN_BACKUP]
    assert not list(script.checkpoints.glob("*/fit-*"))
    assert resumed.trained[0] == (0, 4, 0)  # Keras resumes at an epoch's beginning
    assert resumed.rows[0]["weights"] == plain.rows[0]["weights"]

"""What an input pipeline keeps belongs to the opening of its iterator, which works ahead and can span epochs."""

from __future__ import annotations

import sys

import pytest

from stallguard.probe.checkpoint import announcements
from tests.probe.receiver import ROOT

from .restarts import Restarts

pytestmark = pytest.mark.tf
CHILD = ROOT / "tests" / "probe" / "checkpoint" / "children" / "iterators.py"
BEGIN, END = -1, 99  # of an epoch, as batches
# By environment: the kinds, and in which epoch and after which batch each is killed, twice at most.
CASES = {
    "tensorflow": {
        "generator+repeat": [(1, 3), (2, END)],
        "generator_of_process": [(1, 2)],
        "counter+repeat": [(2, BEGIN)],
        "source+repeat": [(2, 0)],
        "function+repeat": [(1, 4)],
        "harder": [(2, BEGIN), (3, 1)],
        "mined": [(1, 3)],
        "counted": [(1, 3)],
        "validated": [(1, 2), (1, 3)],
    },
    "keras2": {
        "generator+repeat": [(2, 2)],
        "source+repeat": [(1, END)],
        "mined": [(1, 3)],
        "validated": [(1, 2), (1, 3)],
    },
    "torch": {"mined": [(1, 3)]},
}


@pytest.mark.parametrize("name", CASES)
def test_iterators_go_on_with_what_they_had_opened_with(receiver, tmp_path, other_python, name):
    """One chain of restarts of a script with several fits."""
    interpreter = sys.executable if name == "tensorflow" else other_python(name)
    backend = {} if name == "keras2" else {"KERAS_BACKEND": name}
    script = Restarts(receiver, tmp_path, CHILD, interpreter, PYTHONHASHSEED="0", **backend)
    kinds = tuple(CASES[name])
    undisturbed = script.undisturbed(*kinds)
    kills = [(number, *place) for number, kind in enumerate(kinds) for place in CASES[name][kind]]
    attempts = [script.attempt(*kinds, kill=",".join(map(str, kill)), resume=kill != kills[0]) for kill in kills]
    attempts.append(script.attempt(*kinds, resume=True))

    for there, here in zip(attempts[-1].rows, undisturbed.rows, strict=True):
        assert there == here
    said = [text for attempt in attempts for text in attempt.notes("inexact")]
    assert [text for text in said if "<count>['n'] while the input pipeline worked ahead" not in text] == []


def test_what_cannot_be_restored_of_a_pipeline_is_said_when_training_begins(receiver, tmp_path):
    kinds = ("table", "unordered", "shared", "shared_with_process")
    script = Restarts(receiver, tmp_path, CHILD, sys.executable, KERAS_BACKEND="tensorflow")
    said = script.attempt(*kinds).heartbeat.hello()["beyond"]

    assert announcements.KEPT_BY_PIPELINE % "LookupTableInsertV2" in said
    assert announcements.UNORDERED in said
    shared = announcements.SHARED.partition("%s")[0]
    assert [one[len(shared) :].partition(")")[0] for one in said if one.startswith(shared)] == [
        "class __main__.shared.<locals>.Draws.on_train_batch_end<drawn>",
        "numpy.random",
    ]

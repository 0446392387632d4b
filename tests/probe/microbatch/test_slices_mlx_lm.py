"""Batches of mlx-lm's trainer in slices come to the same weights and reports, or stay whole, and it is said why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stallguard.probe.microbatch import announcements
from stallguard.probe.microbatch import slices_mlx_lm as trained
from tests import mlx_kernels
from tests.probe.receiver import Receiver

SCRIPT = Path(__file__).parent / "children" / "mlx_lm_cases.py"
SAME = 4e-6  # a difference of a weight that is rounding
SLICED = ("full", "accumulation=3,batch=5,iters=13", "batch=8,masked", "empty", "own")
COMPILED = "long,full,width=64,length=128,batch=16,iters=3,accumulation=2"
WHOLE = {
    "loss=rows": trained.NO_MEAN, "loss=pairs": trained.NO_MEAN, "normalised,full": announcements.NORMALISES,
    "counting": announcements.VALUES_CHANGE, "scalar": announcements.NO_ROWS % "array",
    "batch=1": announcements.ONE_ROW,
}  # fmt: skip


def run(python, folder, *cases, compiled=False, **settings):
    """Return what was heard of a process that trains the cases, and what they came to.

    For its processor MLX compiles with a compiler of C++, for seconds each: most cases are as exact without.
    """
    folder.mkdir()
    settings |= {} if compiled else {"MLX_DISABLE_COMPILE": "1"}
    with Receiver() as receiver:
        settings = {"TMPDIR": str(receiver.folder), **settings}
        heard = receiver.run([python, str(SCRIPT), *cases], 300, cwd=folder, **settings)
    assert heard.code == 0, heard.err[-3000:]
    assert not [note for note in heard.notes if note["kind"] in ("aside", "trouble", "hooks")]
    return heard, {one["case"]: one for one in map(json.loads, (folder / "trained").read_text().splitlines())}


@pytest.fixture(scope="module")
def plain(other_python, tmp_path_factory):
    """Return what the cases come to in whole batches."""
    folder = tmp_path_factory.mktemp("plain") / "out"
    return run(other_python("mlx"), folder, *SLICED, *WHOLE, "dropout", "half")[1]


def apart(one, other):
    return max(abs(a - b) for a, b in zip(one["weights"], other["weights"], strict=True))


@pytest.mark.parametrize("slices", [2, 4, 8])
def test_slices_train_the_same(plain, other_python, tmp_path, slices):
    heard, found = run(other_python("mlx"), tmp_path / "sliced", *SLICED, slices=slices)
    assert heard.last()["slices"] == slices
    said = [note["text"] for note in heard.notes if note["kind"] == "micro"]
    assert said == [announcements.SLICED.format(slices=slices, rows=2)] * len(SLICED)
    assert not [note for note in heard.notes if note["kind"] == "whole"]
    for case in SLICED:
        one, other = plain[case], found[case]
        assert apart(one, other) <= SAME, case
        assert (other["steps"], other["begun"]) == (one["steps"], one["begun"])
        for report, whole in zip(other["reports"], one["reports"], strict=True):
            assert report == pytest.approx(whole, rel=SAME)
            assert report[1:] == whole[1:]  # tokens, learning rate


def test_the_compiled_step_comes_to_the_same_in_slices_and_four_take_less_than_half_the_memory(other_python, tmp_path):
    # What the first process has compiled, the second finds.
    shared = {"compiled": True, "TMPDIR": mlx_kernels.share(tmp_path)}
    whole, found = (run(other_python("mlx"), tmp_path / str(slices), COMPILED, slices=slices, **shared)[1][COMPILED]
                    for slices in (1, 4))  # fmt: skip
    assert apart(whole, found) <= SAME
    assert found["steps"] == whole["steps"] == 1
    assert found["peak"] <= 0.5 * whole["peak"]


def test_what_cannot_be_divided_stays_whole_and_the_reason_is_given(plain, other_python, tmp_path):
    heard, found = run(other_python("mlx"), tmp_path / "whole", *WHOLE, slices=2)
    said = [note["text"] for note in heard.notes if note["kind"] == "whole"]
    assert said == [announcements.LOOP_WHOLE % reason for reason in WHOLE.values()]
    assert heard.last()["slices"] == 1
    assert all((found[case]["weights"], found[case]["reports"]) == (plain[case]["weights"], plain[case]["reports"])
               for case in WHOLE)  # fmt: skip


def test_what_slices_change_is_named(plain, other_python, tmp_path):
    heard, found = run(other_python("mlx"), tmp_path / "sliced", "dropout", "half", slices=2)
    drawn, rounded = [note["text"] for note in heard.notes if note["kind"] == "micro"]
    assert drawn.endswith(announcements.LOOP_DRAWS)
    assert rounded.endswith(announcements.ROUNDED)
    assert apart(plain["dropout"], found["dropout"]) > SAME
    assert apart(plain["half"], found["half"]) <= 0.01

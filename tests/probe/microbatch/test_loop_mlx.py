"""Loops of MLX whose batches are trained in parts: they end as with whole batches, or the batches stay whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.probe.microbatch import announcements as said
from tests.probe.microbatch.loops import differing, in_parts, notes_of, restarted

CHILD = Path(__file__).parent / "children" / "loop_mlx.py"
DIVIDED = ("Loop", "Adam", "Several", "Sum", "Clipped")
WHOLE = {
    "NoWord": said.NO_WORD, "Normalised": said.NORMALISES, "Compiled": said.COMPILED_UPDATE,
    "CompiledGradient": said.GRADIENTS_CHANGE, "OwnClip": said.GRADIENTS_CHANGE,
    "OwnAverage": said.VALUES_CHANGE,
}  # fmt: skip


@pytest.fixture(scope="module")
def plain(other_python):
    return in_parts(other_python("mlx"), CHILD, 1, *DIVIDED, *WHOLE, "Dropped", "Accumulates")


@pytest.mark.parametrize("count", [2, 4, 8])
def test_parts_train_the_same(other_python, plain, count):
    found = in_parts(other_python("mlx"), CHILD, count, *DIVIDED)
    assert differing(plain, found, 4e-6) == {}
    assert {name: row["slices"] for name, row in found.items()} == dict.fromkeys(DIVIDED, count)
    for name in DIVIDED:
        word = "sum" if name == "Sum" else "mean"
        assert notes_of(found, name) == {"micro": said.LOOP_SLICED % (count, word)}


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1), (8, 2)])
def test_a_checkpoint_holds_for_any_number_of_parts(other_python, tmp_path, plain, before, after):
    found = restarted(other_python("mlx"), CHILD, tmp_path, (before, after), "Adam")
    [goes_on, unkept] = [note for note in found["Adam"]["notes"] if note[0] in ("resume", "inexact")]
    assert goes_on == ["resume", "the script's loop goes on in epoch 2, after its batch 1"]
    assert unkept[0] == "resume"
    assert "data.self.x (array)" in unkept[1]
    assert differing(plain, found, 4e-6) == {}


def test_batches_that_cannot_be_divided_stay_whole_and_the_reason_is_given(other_python, plain):
    found = in_parts(other_python("mlx"), CHILD, 2, *WHOLE)
    assert differing(plain, found, 0.0) == {}
    assert {name: notes_of(found, name) for name in WHOLE} == {
        name: {"whole": said.LOOP_WHOLE % reason} for name, reason in WHOLE.items()
    }
    assert {row["slices"] for row in found.values()} == {1}


def test_what_is_not_exact_is_noted(other_python, plain):
    found = in_parts(other_python("mlx"), CHILD, 2, "Dropped", "Accumulates")
    assert notes_of(found, "Dropped") == {"micro": said.LOOP_SLICED % (2, "mean") + said.LOOP_DRAWS}
    assert notes_of(found, "Accumulates") == {
        "whole": said.LOOP_WHOLE % said.ADDS_UP, "inexact": said.TWICE % 1
    }  # fmt: skip
    assert differing(plain, found, 0.0).keys() == {"Dropped"}  # its sums were handed over

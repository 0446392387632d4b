"""How much two gradients may differ and still be the same: rounding passes, another training does not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stallguard.core.diagnosis import signatures
from stallguard.probe.microbatch.compare import StepOutcome, difference, is_lack_of_memory

GRADIENT = np.linspace(0.1, 1.0, 64, dtype="float32")


def outcome(bias):
    return StepOutcome(1.0, [1.0, 1.0], [GRADIENT, bias], [GRADIENT], {}, {})


@pytest.mark.parametrize(
    ("apart", "same"),
    [
        pytest.param(3.6e-5, True, id="the bias of a convolution over many pixels, as measured"),
        pytest.param(1e-3, False, id="a term that a slice counts otherwise"),
    ],
)
def test_a_sum_over_many_numbers_rounds_otherwise_and_nothing_else_may(apart, same):
    said = difference(outcome(GRADIENT), outcome(GRADIENT * np.float32(1 + apart)), ["kernel", "bias"], half=False)
    assert (said == "") is same
    assert same or "'bias'" in said


def test_each_signature_of_too_little_memory_is_one_of_an_error():
    lines = json.loads((Path(__file__).parents[2] / "recordings" / "signatures.json").read_text("utf-8"))
    lacks = [one.id for one in signatures.TABLE if one.family in ("GPU_OOM", "HOST_OOM")]
    assert len(lacks) >= 10
    assert [one for one in lacks if not is_lack_of_memory(RuntimeError(lines[one]["line"]))] == ["python_memory"]
    assert is_lack_of_memory(MemoryError())  # whose name is not in its text
    assert not is_lack_of_memory(RuntimeError("the size of tensor a must match the size of tensor b"))

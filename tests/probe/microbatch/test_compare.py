"""How much two gradients may differ and still be the same: rounding passes, another training does not."""

from __future__ import annotations

import numpy as np
import pytest

from stallguard.probe.microbatch.compare import StepOutcome, difference

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

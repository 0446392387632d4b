"""The simulated nights of `scripts/bench memory` are what they say, and their leaks are met in time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shortage import nights, watched

BENCHES = Path(__file__).parents[1] / "scripts" / "benches"


def test_a_night_is_healthy_or_leaks_until_nothing_is_left():
    assert nights.healthy(np.random.default_rng(1)).over is None
    assert nights.leaking(np.random.default_rng(1), "linear").over is not None


@pytest.mark.costly
@pytest.mark.parametrize("shape", ["linear", "validation"])
def test_a_simulated_leak_is_met_in_time(shape):
    night = nights.leaking(np.random.default_rng((3, 1)), shape)
    seen = watched.watch(night)

    assert night.over is not None
    assert seen.told < night.over * nights.EVERY
    assert seen.asked <= seen.ended < night.over * nights.EVERY

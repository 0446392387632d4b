"""The cells of a grid say what the readings say, and nothing of which there was no reading."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stallguard.report.time_series import FINEST, Points, grid, rate


def test_a_long_night_is_fine_around_its_incidents_only():
    edges = grid(0.0, 8 * 3600.0, [10_000.0])

    steps = np.diff(edges)
    near = (edges[:-1] > 9_950) & (edges[:-1] < 10_050)
    assert steps[near].max() <= 1.0
    assert len(edges) < 3000
    assert np.median(steps[~near]) > 5


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 10)), min_size=2, max_size=40), st.integers(2, 50))
def test_what_the_cells_say_adds_up_to_what_the_counter_rose(steps, cells):
    moments = np.cumsum([gap / 10 + 0.001 for gap, _ in steps])
    counts = np.cumsum([rise for _, rise in steps])
    edges = np.linspace(moments[0], moments[-1], cells + 1)

    rates = rate(Points(moments, counts), edges)

    known = np.isfinite(rates)
    if known.all():
        assert math.isclose((rates * np.diff(edges)).sum(), counts[-1] - counts[0], rel_tol=1e-6, abs_tol=1e-6)
    assert (rates[known] >= 0).all()


def test_a_run_of_an_instant_has_a_grid():
    assert len(grid(5.0, 5.0, [5.0])) >= 2
    assert grid(5.0, 5.0, [])[-1] == 5.0 + FINEST

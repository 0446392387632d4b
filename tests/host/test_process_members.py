"""Totals never fall."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stallguard.host.process_members import Rising


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_a_total_never_falls_and_keeps_every_rise(raw: list[int]) -> None:
    rising = Rising()
    totals = [rising.count("x", one) for one in raw]
    assert totals == sorted(totals, key=lambda total: total or 0)
    rises = sum(max(0, after - before) for before, after in itertools.pairwise(raw))
    assert totals[-1] == raw[0] + rises


def test_what_is_not_known_stays_unknown_and_does_not_disturb() -> None:
    rising = Rising()
    assert [rising.count("x", raw) for raw in (5, None, 3, 4)] == [5, None, 5, 6]

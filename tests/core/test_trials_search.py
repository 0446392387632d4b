"""The search for the largest batch: it always ends, and its answer is one that was seen to survive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stallguard.core.trials import GRAIN, Search, next_rows, next_slices, tried


def found(first: int, most: int, limit: int) -> tuple[Search, list[int]]:
    """Search where every batch up to `limit` rows survives."""
    search, tries = Search(first=first, most=most), []
    while (rows := next_rows(search)) is not None:
        tries.append(rows)
        search = tried(search, rows, survived=rows <= limit)
        assert len(tries) < 64
    return search, tries


@given(st.integers(1, 10**6), st.integers(1, 10**7), st.integers(0, 10**7))
def test_the_answer_survives_and_a_little_more_would_not(first: int, most: int, limit: int) -> None:
    search, tries = found(first, most, limit)
    assert search.good <= min(limit, most)
    assert len(set(tries)) == len(tries)
    assert max(tries) <= most
    if limit == 0:
        assert (search.good, tries[-1]) == (0, 1)
    elif limit >= most:
        assert search.good == most
    else:
        assert search.bad - search.good <= max(1, search.good // GRAIN)


def test_it_begins_with_the_scripts_own_size_and_halves_or_doubles_from_there() -> None:
    assert found(64, 1024, 200)[1] == [64, 128, 256, 192, 224, 208]
    assert found(64, 1024, 20)[1] == [64, 32, 16, 24, 20, 22]


def test_nothing_below_the_least_is_tried() -> None:
    search = tried(Search(first=64, most=1024, least=20), 64, survived=False)
    search = tried(search, 32, survived=False)
    assert next_rows(search) is None


def test_parts_double_until_they_would_be_too_many() -> None:
    assert [next_slices(failed, 4) for failed in (0, 1, 2, 4)] == [1, 2, 4, None]
    assert [next_slices(failed, 8, 3) for failed in (0, 3, 6)] == [3, 6, None]

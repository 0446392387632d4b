"""One of several hooks counts, and batches that earlier attempts trained are no batches of this one."""

from __future__ import annotations

import pytest

from stallguard.probe import wire
from stallguard.probe.batch_count import PATIENCE, RANK, Credit, LoopPosition

FUNCTION, TORCH, HAND = (wire.SOURCES.index(name) for name in ("function", "torch", "hand"))


def test_each_source_but_none_has_a_rank() -> None:
    assert set(RANK) == set(range(1, len(wire.SOURCES)))


def test_a_hook_of_a_lower_rank_takes_over_and_counts_no_batch_twice() -> None:
    credit = Credit()
    assert [credit.of(FUNCTION), credit.of(TORCH)] == [1, 0]
    assert [credit.of(one) for one in (FUNCTION, TORCH, FUNCTION, TORCH)] == [0, 1, 0, 1]


def test_if_the_leader_observes_nothing_any_more_another_hook_counts_what_it_has_seen() -> None:
    credit = Credit()
    assert credit.of(HAND) == 1
    found = [credit.of(TORCH) for _ in range(PATIENCE + 1)]
    assert found == [0] * (PATIENCE - 1) + [PATIENCE, 1]


def test_whoever_counts_alone_is_seen_at_once() -> None:
    credit = Credit()
    credit.of(TORCH)
    assert (credit.leader, credit.held) == (TORCH, {})
    credit.of(FUNCTION)
    assert credit.held
    credit.of(TORCH)
    assert not credit.held


@pytest.mark.parametrize("early", [False, True])  # before the epoch begins: Keras 2
def test_an_epoch_ends_where_it_would_without_the_attempt_before(early: bool) -> None:
    position = LoopPosition()
    position.fit_begins(7)
    if early:
        position.goes_on(3)
    assert position.epoch_begins(7, 10) == (3 if early else 0)
    if not early:
        position.goes_on(3)
    assert (position.fit, position.epoch, position.last) == (7, 4, 14)


@pytest.mark.parametrize(("index", "stride", "count"), [(4, 5, 5), (0, 5, 5), (11, 5, 12)])
def test_an_execution_has_the_batches_up_to_its_index_or_its_stride(index: int, stride: int, count: int) -> None:
    position = LoopPosition()
    position.epoch_begins(0, -1)
    assert position.ended(0, index, stride) == count

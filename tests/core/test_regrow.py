"""Back up again: asked for after a stable time, answered by the probe, never twice where it ended badly twice."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core import regrow, sizes
from stallguard.core.actions import Ask, Launch, Signal
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.sizes import Sizes
from tests.simulation.simulation import LIMITS, Simulation
from tests.simulation.subjects import WholeCore

STABLE = 120.0
POLICY = msgspec.structs.replace(
    LIMITS.policy, on_stall="halve", regrow=True, regrow_after=STABLE, max_restarts=10, no_progress_limit=10
)
REGROWING: Limits = msgspec.structs.replace(LIMITS, policy=POLICY)


def at_half(limits: Limits = REGROWING, known: Sizes = sizes.UNKNOWN) -> Simulation:
    """Return a run that left its whole batch for halves."""
    world = Simulation(WholeCore(limits, sizes=known), ends_if_asked=False)
    world.note("batch", rows="32")
    world.train(60)
    stall(world, 2)
    return world


def stall(world: Simulation, factor: int) -> None:
    """Let it hang until it is started again with `factor` parts."""
    attempts = len(factors(world))
    while len(factors(world)) == attempts:
        world.silent(1)
    assert factors(world)[-1] == factor
    world.note("batch", rows="32")


def asked(world: Simulation) -> list[Ask]:
    return [action for action in world.actions(Ask) if action.command == "regrow"]


def factors(world: Simulation) -> list[int]:
    return [action.factor for action in world.actions(Launch)]


def test_after_a_stable_time_and_not_before_the_probe_is_asked_once() -> None:
    world = at_half()
    world.train(STABLE - 5)
    assert asked(world) == []

    world.train(3 * STABLE)
    assert [msgspec.structs.asdict(action) for action in asked(world)] == [
        {"attempt": 2, "command": "regrow"}
    ]


@pytest.mark.parametrize(
    "limits",
    [
        msgspec.structs.replace(REGROWING, observe=True),
        msgspec.structs.replace(REGROWING, policy=msgspec.structs.replace(POLICY, regrow=False)),
    ],
)
def test_batches_stay_as_they_are_unless_the_user_asked_for_slices(limits: Limits) -> None:
    world = Simulation(WholeCore(limits, factor=2), ends_if_asked=False)
    world.train(3 * STABLE)

    assert asked(world) == []


def test_batches_that_grew_where_they_are_need_no_new_start() -> None:
    world = at_half()
    world.train(2 * STABLE)
    world.note("regrown", "from now on each batch is whole", factor="1")
    world.train(STABLE)

    assert world.run.factor == 1
    assert factors(world) == [1, 2]
    assert world.announced().count("batch.smaller") == 1


def test_where_only_a_new_start_can_it_comes_at_the_end_of_the_epoch() -> None:
    world = at_half()
    world.train(2 * STABLE)
    signals = len(world.actions(Signal))
    world.note("epoch-end")
    world.train(5)

    assert len(world.actions(Signal)) == signals + 1
    assert factors(world) == [1, 2, 1]


def test_an_epochs_end_that_was_not_asked_for_restarts_nothing() -> None:
    world = at_half()
    world.note("epoch-end")
    world.train(5)

    assert factors(world) == [1, 2]


def test_a_size_left_twice_is_not_tried_again() -> None:
    world = at_half()
    world.train(2 * STABLE)
    world.note("regrown", factor="1")
    world.train(60)
    stall(world, 2)

    world.train(10 * STABLE)
    assert len(asked(world)) == 1
    assert world.run.sizes.left == {"32 rows": 2}


def test_what_an_earlier_run_learned_holds_for_the_next() -> None:
    world = at_half(known=Sizes(left={"32 rows": 1}))
    world.train(10 * STABLE)

    assert asked(world) == []


def test_sizes_of_a_batch_of_unknown_rows_are_distinguished_too() -> None:
    known = sizes.leave(sizes.leave(sizes.UNKNOWN, None, 1), None, 1)
    assert known.left == {"1/1 of the batch": 2}
    assert regrow.larger(2, None, known, STABLE, POLICY) is None
    assert regrow.larger(4, None, known, STABLE, POLICY) == 2


FACTORS = st.integers(0, 6).map(lambda n: 2**n)


@given(
    FACTORS, st.one_of(st.none(), st.integers(1, 4096)), FACTORS, st.floats(0, 1e6),
    st.dictionaries(st.integers(1, 4096).map("{} rows".format), st.integers(0, 3)),
)  # fmt: skip
def test_never_larger_than_what_find_batch_saw_survive(
    factor: int, rows: int | None, least: int, stable: float, left: dict[str, int]
) -> None:
    found = regrow.larger(factor, rows, Sizes(left=left, factor=least), stable, POLICY)
    assert found is None or (least <= found == factor // 2 and stable >= STABLE)
    assert found is None or left.get(sizes.label(rows, found), 0) < 2
    assert regrow.larger(factor, rows, Sizes(), stable, PolicyLimits()) is None

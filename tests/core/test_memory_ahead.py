"""A training whose memory runs out is announced, saved and started again in time; a healthy one is left alone."""

from __future__ import annotations

import random
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.core import memory_ahead
from stallguard.core.actions import Action, Ask, Conclude, Launch, Signal
from stallguard.core.diagnosis import causes
from stallguard.core.events import ProbeConnected
from stallguard.core.history import TimedReading
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.readings import Memory, Process
from tests.simulation.simulation import LIMITS, Simulation

GB = 10**9
TOTAL, BASE, OTHERS = 32 * GB, 8 * GB, 6 * GB
EPOCH = 60  # batches, one a second
# Seconds between two readings: as a sensor of the memory reads, so that two hours pass in a second.
LOOK = 5.0
FILLED = (TOTAL - OTHERS - BASE) / GB  # GB until nothing is left


class Machine(Simulation):
    """A training on a machine of 32 GB.  `saves`: whether it makes the checkpoints that it is asked for."""

    def __init__(
        self, policy: PolicyLimits | None = None, *, saves: bool = True, observe: bool = False,
        ends_if_asked: bool = True,
    ) -> None:  # fmt: skip
        limits: Limits = replace(LIMITS, policy=policy or PolicyLimits(), observe=observe)
        self.saves, self.pressure = saves, None
        self.others, self.paged, self.paged_limit = OTHERS, 0, 0
        super().__init__(limits, tick=LOOK, batch=1.0, ends_if_asked=ends_if_asked)

    def first_record(self) -> dict[str, object]:
        return {"batches": EPOCH, "saves": 1 if self.saves else 0}

    def answer(self, action: Action) -> None:
        super().answer(action)
        if isinstance(action, Launch):
            self.use(BASE)
        if isinstance(action, Ask) and action.command == "save" and self.saves:
            self.progress(saves=self.heartbeat.saves + 1)

    def use(self, footprint: float) -> None:
        """Set the footprint, and what is left beside it."""
        self.be(tree=replace(self.tree, footprint=int(footprint)))
        left = max(0, TOTAL - int(self.others) - int(footprint))
        self.system.memory = Memory(
            total=TOTAL, available=left, pressure=self.pressure, paged=int(self.paged), paged_limit=self.paged_limit,
        )  # fmt: skip

    def leak(self, seconds: float, rate: float, *, peaks: bool = False) -> Self:
        """Train while `rate` GB a second are lost; `peaks`: between large steps the footprint is as before."""
        attempt, grown, dice = self.attempt, (self.tree.footprint or BASE) - BASE, random.Random(1)
        for _ in range(round(seconds / LOOK)):
            grown += rate * GB * LOOK
            if self.attempt != attempt or not self.alive:
                break
            self.use(BASE + (0 if peaks and dice.random() < 0.5 else grown))
            self.go_on(LOOK)
        return self

    def beside(self, seconds: float, rate: float) -> Self:
        """Train while other processes take `rate` GB a second more; what does not fit is paged out."""
        for _ in range(round(seconds / LOOK)):
            self.others += rate * GB * LOOK
            used = self.tree.footprint or BASE
            if (over := self.others + used - 0.97 * TOTAL) > 0 and self.paged_limit:
                self.others -= over
                self.paged += over
            self.use(used)
            self.go_on(LOOK)
        return self

    def signals(self) -> list[str]:
        return [action.name for action in self.actions(Signal)]

    def asked(self) -> list[str]:
        return [action.command for action in self.actions(Ask)]


def settled(**how: Any) -> Machine:
    """Return a training that is steady for a quarter of an hour."""
    return Machine(**how).leak(900, 0.0)


@pytest.mark.costly
def test_a_leak_is_announced_saved_and_ended_in_time_and_trained_on_with_the_same_batch() -> None:
    world = settled()
    world.leak(7200, FILLED / 3600)

    first = {name: next(at for at, action in world.done if match(action)) for name, match in {
        "told": lambda action: getattr(action, "message", "") == "memory.trend",
        "asked": lambda action: isinstance(action, Ask) and action.command == "save",
        "ended": lambda action: isinstance(action, Ask) and action.command == "stop",
    }.items()}  # fmt: skip
    full = 100 + 900 + 3600  # seconds on the world's clock at which nothing would be left
    assert 20 * 60 < full - first["told"] < 40 * 60
    assert 8 * 60 < full - first["asked"] < 16 * 60
    assert 0 < full - first["ended"] < 5 * 60
    assert world.asked() == ["save", "stop"], "it ends after a batch, so that none is trained twice"
    assert world.signals() == []
    assert [(one.attempt, one.slices, one.resume) for one in world.actions(Launch)] == [(1, 1, False), (2, 1, True)]
    assert world.announced().count("memory.trend") == 1
    assert world.facts_of("run.end_is_due")[0]["why"].startswith("memory runs out in ")


@pytest.mark.costly
def test_a_training_that_does_not_end_after_a_batch_is_ended_by_signal() -> None:
    world = settled(ends_if_asked=False)
    world.leak(7200, FILLED / 3600)

    asked = next(at for at, action in world.done if getattr(action, "command", "") == "stop")
    ended = next(at for at, action in world.done if isinstance(action, Signal))
    assert world.signals() == ["TERM"]
    assert 9.0 <= ended - asked <= 12.0
    assert len(world.actions(Launch)) == 2


def test_steps_that_need_more_and_more_get_half_the_batch() -> None:
    world = settled()
    world.note("batch", rows="64")
    world.leak(3600, FILLED / 1200, peaks=True)

    assert [one.slices for one in world.actions(Launch)] == [1, 2]
    assert causes.STEPS_NEED_MORE in str(world.done)


@pytest.mark.costly
def test_without_a_checkpoint_the_training_goes_on_and_it_is_said_once() -> None:
    world = settled(saves=False)
    world.leak(3600, FILLED / 1200)

    assert world.signals() == []
    assert world.asked() == []
    assert world.facts_of("memory.left_alone") == [{"why": "there is no checkpoint of this attempt to go on from"}]
    assert world.announced().count("memory.trend") == 1


@pytest.mark.costly
def test_a_training_that_can_save_and_has_not_yet_is_asked() -> None:
    world = settled(saves=False)
    world.tell(ProbeConnected, attempt=1, pid=7, hooks=("checkpoint",))
    world.leak(3600, FILLED / 1200)

    assert world.asked()[:1] == ["save"]
    assert world.signals() == [], "it made none"


@pytest.mark.costly
@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (PolicyLimits(memory_ahead="notify"), "the setting policy.memory_ahead is notify"),
        (PolicyLimits(on_stall="notify"), "the setting policy.on_stall is notify"),
        (PolicyLimits(max_restarts=0), "0 restarts within 60 minutes are enough"),
    ],
)
def test_what_forbids_a_restart_is_said_and_nothing_is_ended(policy: PolicyLimits, why: str) -> None:
    world = settled(policy=policy)
    world.leak(3600, FILLED / 1200)

    assert world.signals() == []
    assert world.actions(Conclude) == []
    assert world.facts_of("memory.left_alone") == [{"why": why}]


@pytest.mark.costly
def test_off_means_that_nothing_is_said() -> None:
    world = settled(policy=PolicyLimits(memory_ahead="off"))
    world.leak(3600, FILLED / 1200)

    assert not [one for one in world.announced() if one.startswith("memory.")]
    assert world.asked() == []


@pytest.mark.costly
def test_an_observed_training_is_neither_asked_nor_ended() -> None:
    world = settled(observe=True)
    world.leak(3600, FILLED / 1200)

    assert world.asked() == world.signals() == []
    assert world.facts_of("memory.left_alone") == [{"why": "this run is only observed"}]


@pytest.mark.costly
def test_stall_handling_that_is_paused_ends_nothing() -> None:
    world = settled()
    world.ask("mute", "7200")
    world.leak(3600, FILLED / 1200)

    assert world.signals() == []
    assert world.facts_of("memory.left_alone") == [{"why": "stall handling is paused"}]


@pytest.mark.costly
def test_a_mac_that_calls_its_pressure_normal_is_believed() -> None:
    world = settled()
    world.pressure = "normal"
    world.leak(1100, FILLED / 1200)
    world.leak(120, FILLED / 1200)
    assert set(world.asked()) == {"save"}

    world.pressure = "warn"
    world.leak(60, FILLED / 12000)
    assert world.asked()[-1] == "stop"


@pytest.mark.costly
def test_critical_pressure_saves_a_growing_training_at_once_and_ends_it() -> None:
    world = settled()
    world.leak(1500, FILLED / 3600)
    assert world.asked() == []

    world.pressure = "critical"
    world.leak(20, FILLED / 3600)
    assert world.asked() == ["save", "stop"]


def test_critical_pressure_that_the_training_does_not_cause_saves_it_and_ends_nothing() -> None:
    world = settled()
    world.pressure = "critical"
    world.leak(300, 0.0)

    assert world.asked() == ["save"]
    assert world.announced().count("memory.checkpoint") == 1
    assert world.signals() == []


def test_a_cache_that_fills_in_the_first_epoch_is_left_alone() -> None:
    world = Machine()
    world.leak(EPOCH - 5, 0.8 * FILLED / EPOCH)
    world.leak(1800, 0.0)

    assert not [one for one in world.announced() if one.startswith("memory.")]


def test_a_leak_of_the_first_epoch_is_ended_at_the_last_moment() -> None:
    world = Machine()
    world.be(record=replace(world.heartbeat, batches=10**6))
    world.leak(600, FILLED / 300)

    assert world.asked()[-1] == "stop"
    assert len(world.actions(Launch)) == 2


@pytest.mark.costly
def test_a_leak_that_begins_after_hours_is_seen_in_the_newest_readings() -> None:
    world = Machine().leak(4 * 3600, 0.0)
    world.leak(1200, FILLED / 600)

    assert world.asked()[-1] == "stop"
    assert world.now < 100 + 4 * 3600 + 640


@pytest.mark.costly
def test_a_new_attempt_is_asked_and_told_again() -> None:
    world = settled()
    world.leak(3600, FILLED / 1200)
    world.leak(900, 0.0)
    world.leak(3600, FILLED / 1200).wait(5)

    assert world.asked() == ["save", "stop", "save", "stop"]
    assert world.announced().count("memory.trend") == 2
    assert [one.slices for one in world.actions(Launch)] == [1, 1, 1]


def with_as_much_again(rate: float) -> Machine:
    """Return a training that was ended for its memory, needs as much again at once, and `rate` GB a second more."""
    world = settled()
    world.note("batch", rows="64")
    world.leak(7200, FILLED / 3600)
    world.use(BASE + 0.9 * FILLED * GB)
    return world.leak(1200, rate).wait(60)


@pytest.mark.costly
def test_growth_that_a_new_process_has_again_at_once_is_of_the_steps_and_gets_half_the_batch() -> None:
    """An allocator that keeps what large steps took looks like a leak until the training is started again."""
    world = with_as_much_again(FILLED / 3600)

    assert [one.slices for one in world.actions(Launch)] == [1, 1, 2]
    stopping = [facts["why"] for facts in world.facts_of("run.end_is_due")]
    assert "a new process frees the leaked memory" in stopping[0]
    assert "half the batch needs less memory" in stopping[1]


@pytest.mark.costly
def test_memory_that_a_new_process_needs_again_and_that_grows_no_more_is_left_alone() -> None:
    world = with_as_much_again(0.0)

    assert [one.slices for one in world.actions(Launch)] == [1, 1]
    assert world.announced().count("memory.trend") == 1, "of the first attempt"


@pytest.mark.costly
def test_what_a_new_process_needs_from_its_first_batches_on_is_no_growth_that_came_back() -> None:
    world = settled()
    world.note("batch", rows="64")
    world.leak(7200, FILLED / 3600)
    world.use(BASE + 0.3 * FILLED * GB)
    world.leak(1800, 0.0)

    assert [one.slices for one in world.actions(Launch)] == [1, 1]


def test_memory_that_grows_back_to_what_was_needed_before_is_no_leak() -> None:
    world = Machine()
    world.use(BASE + 0.93 * FILLED * GB)
    world.leak(200, 0.0)
    world.use(BASE)
    world.leak(1800, 0.9 * FILLED / 1800)

    assert not [one for one in world.announced() if one.startswith("memory.")]


@pytest.mark.costly
def test_other_processes_that_take_the_memory_are_announced_and_the_training_is_saved() -> None:
    world = settled()
    world.beside(3500, FILLED / 3600)

    [facts] = world.facts_of("memory.others")
    assert "min" in facts["when"]
    assert set(world.asked()) == {"save"}, "a machine that freezes takes the training with it"
    assert world.signals() == []
    assert world.announced().count("memory.trend") == 0, "it is not the training"


@pytest.mark.costly
def test_what_the_machine_can_compress_and_swap_is_room_for_other_processes() -> None:
    world = settled()
    world.paged_limit = 18 * GB
    world.beside(3500, FILLED / 3600)
    assert world.announced().count("memory.others") == 0

    world.beside(3000, FILLED / 3600)
    assert world.announced().count("memory.others") == 1
    [told] = [at for at, action in world.done if getattr(action, "message", "") == "memory.others"]
    full = 100 + 900 + 3600 * (FILLED + 18) / FILLED
    assert 20 * 60 < full - told < 40 * 60


@pytest.mark.costly
def test_programs_that_are_opened_and_closed_are_no_trend() -> None:
    world = settled()
    for _ in range(4):
        world.beside(60, 0.1)
        world.beside(600, 0.0)
        world.beside(30, -0.2)
        world.beside(600, 0.0)
    assert world.announced().count("memory.others") == 0


@pytest.mark.costly
def test_an_attempt_that_crashes_before_its_arranged_end_counts_once() -> None:
    world = settled(ends_if_asked=False, policy=PolicyLimits(max_restarts=1))
    answer = world.answer

    def crash(action: Action) -> None:
        answer(action)
        if isinstance(action, Ask) and action.command == "stop":
            world.exit(-11)

    world.answer = crash
    world.leak(1700, FILLED / 1200)

    assert len(world.actions(Launch)) == 2, world.facts_of("run.gave_up")


@given(
    st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(1, 9)), max_size=12, unique_by=lambda one: one[0]),
    st.integers(0, 60),
)
def test_the_footprint_of_a_time_is_the_one_that_was_read_nearest_to_it(readings, at):
    readings.sort(key=lambda one: one[0])
    known = [(abs(when - at), used) for when, used in readings if used is not None]
    history = [TimedReading(float(when), Process(footprint=used)) for when, used in readings]

    # Of two that are equally near, the earlier one.
    assert memory_ahead._footprint_at(history, float(at)) == min(known, key=lambda one: one[0], default=(0, None))[1]

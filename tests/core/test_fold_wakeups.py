"""When the run asks to be woken: never for nothing, or the deciding thread spins for as long as a stall is held."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core import fold, lifecycle
from stallguard.core.events import Event, ProcessLeft, Ticked
from stallguard.core.limits import Limits
from stallguard.core.readings import Device, Files, Process
from tests import examples
from tests.simulation.simulation import LIMITS, Simulation

# Wakes at one instant that each do something: a grace of 0 s that is over, SIGKILL, the next attempt.
IN_A_ROW = 3
HELD = 3600  # seconds


def limits(*, observe: bool = False, on_stall: str = "restart", segment: float = float("inf")) -> Limits:
    policy = msgspec.structs.replace(LIMITS.policy, on_stall=on_stall)
    return msgspec.structs.replace(LIMITS, observe=observe, policy=policy, segment=segment)


class Clocked(Simulation):
    """Which looks after each event how often the run asks to be woken at that same instant."""

    def feed(self, event: Event) -> None:
        super().feed(event)
        for _ in range(IN_A_ROW):
            if self.wake() > self.now:
                return
            super().feed(Ticked(at=self.now))
        assert self.wake() > self.now, f"{self.run.state} asks for a tick that changes nothing"

    def wake(self) -> float:
        return fold.next_wake(self.run, self.limits)

    def sleep_until_woken(self, seconds: float) -> int:
        """Let time pass in which nothing happens but what the run asks for; return the number of wakes."""
        until, wakes = self.now + seconds, 0
        while (wake := self.wake()) < until:
            self.now, wakes = max(self.now, wake), wakes + 1
            self.tell(Ticked)
        self.now = until
        return wakes


def stall(world: Simulation) -> Simulation:
    world.train(60)
    world.silent(60)
    return world


def mute(world: Simulation) -> Simulation:
    world.train(60)
    world.ask("mute", str(2 * HELD))
    world.silent(60)
    return world


def save(world: Simulation) -> Simulation:
    stall(world)
    for _ in range(HELD):
        world.now += 1.0
        world.sampled(Files(writing=True))
    return world


def halt(world: Simulation) -> Simulation:
    world.train(60)
    world.silent(300, state="stopped", pulses=False, tick=1.0)
    return world


def interrupt(world: Simulation) -> Simulation:
    world.train(60)
    world.silent(8)
    world.ends_on_term = False
    world.ask("interrupt")
    world.silent(120)
    return world


@pytest.mark.costly
@pytest.mark.parametrize(
    ("hold", "given_limits"),
    [
        (stall, limits(observe=True)), (stall, limits(on_stall="notify")), (mute, limits()),
        (save, limits(observe=True)), (halt, limits(on_stall="auto")), (interrupt, limits(on_stall="notify")),
    ],
    ids=["observed", "notified", "muted", "saving", "stopped by somebody", "interrupted"],
)  # fmt: skip
def test_a_stall_that_is_held_wakes_the_deciding_thread_once_a_second(hold, given_limits):
    world = hold(Clocked(given_limits))

    assert 0 < world.sleep_until_woken(HELD) <= HELD + 1


MARKS = (
    "stuck", "train", "pass", "stopped", "saving", "gpu", "slept", "fault", "left", "note", "exit",
    "mute", "interrupt", "stop", "restart", "finish", "dump",
)  # fmt: skip
silences = st.tuples(st.just("stuck"), st.floats(30.0, 150.0))
marks = st.one_of(silences, st.tuples(st.sampled_from(MARKS), st.floats(0.0, 150.0)))


def happen(world: Simulation, what: str, much: float) -> None:
    sampled = {
        "stopped": Process(state="stopped", io=0),
        "saving": Files(writing=True),
        "gpu": Device(used_by_run=True, moved=True, utilisation=0.9),
    }
    if what == "train":
        world.train(min(much, 20.0))
    elif what == "stuck":
        world.silent(much, tick=1.0)
    elif what == "pass":
        world.now += much
        world.tell(Ticked)
    elif what in sampled:
        world.sampled(sampled[what])
    elif what == "exit":
        world.exit(int(much) % 3)
    elif what == "slept":
        world.sleep(much)
    elif what == "fault":
        world.line("iogpu_ignored", "x")
    elif what == "left":
        world.tell(ProcessLeft, attempt=world.attempt, pid=7, how="ended")
    elif what == "note":
        world.note("epoch-end")
    else:
        world.ask(what, str(much) if what == "mute" else "")


@pytest.mark.costly
@settings(max_examples=examples.of(60, fast=10), deadline=None)
@given(
    history=st.lists(marks, max_size=12),
    observe=st.booleans(),
    on_stall=st.sampled_from(["auto", "restart", "notify"]),
    segment=st.sampled_from([float("inf"), 30.0]),
    ends_on_term=st.booleans(),
)
def test_a_wake_is_never_in_the_past_unless_the_next_tick_does_something_about_it(
    history, observe, on_stall, segment, ends_on_term
):
    chosen = limits(observe=observe, on_stall=on_stall, segment=segment)
    world = Clocked(chosen, ends_on_term=ends_on_term, ends_if_asked=ends_on_term)
    world.train(30)

    for what, much in history:
        if world.run.state in lifecycle.ENDED:
            return
        happen(world, what, much)

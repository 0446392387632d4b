"""SIGKILL comes early to a stalled training that does nothing about SIGTERM, and to no other."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.actions import Signal
from stallguard.core.events import Exited
from stallguard.core.grace_period import WAIT
from stallguard.core.readings import Files
from tests.simulation.program import Rates
from tests.simulation.simulation import LIMITS, Simulation

GRACE = 10.0
PATIENT = msgspec.structs.replace(LIMITS, stop=msgspec.structs.replace(LIMITS.stop, grace=GRACE))
LOCKED = {"futex": 4}


class Stalling(Simulation):
    """A training that is silent: how long it lasts until signals are sent."""

    def silence(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until and self.alive:
            self.silent(0.25, pulses=False, tick=0.25)

    def signals(self) -> dict[str, float]:
        return {action.name: at for at, action in self.done if isinstance(action, Signal)}

    def until_sigterm(self) -> None:
        while "TERM" not in self.signals():
            assert self.now < 1000, "it never acted"
            self.silence(0.5)

    def until_sigkill(self) -> float:
        """Return the seconds from SIGTERM to SIGKILL."""
        while "KILL" not in self.signals():
            assert self.now < 1000, "it never came"
            self.silence(0.25)
        return self.signals()["KILL"] - self.signals()["TERM"]


@pytest.fixture
def stalling() -> Stalling:
    world = Stalling(PATIENT, ends_on_term=False)
    world.train(60)
    one = world.training
    one.stuck_rates = Rates(cores=0.0, census=LOCKED)
    one.tree = msgspec.structs.replace(one.tree, disk=0, threads=4, main_site="futex", remote=False)
    return world


def without_censuses(stalling: Stalling, **facts: object) -> None:
    one = stalling.training
    one.stuck_rates = Rates(cores=0.0)
    one.tree = msgspec.structs.replace(one.tree, main_site=None, **facts)


def test_who_only_notes_sigterm_in_a_deadlock_is_not_waited_for(stalling: Stalling) -> None:
    stalling.until_sigterm()

    assert WAIT <= stalling.until_sigkill() < WAIT + 1
    assert "attempt.sigterm_unused" in stalling.announced()
    assert "attempt.killing" not in stalling.announced()


def test_without_censuses_an_idle_process_without_connections_is_not_waited_for(stalling: Stalling) -> None:
    without_censuses(stalling, disk=None)
    stalling.until_sigterm()

    assert WAIT <= stalling.until_sigkill() < WAIT + 1


@pytest.mark.parametrize(
    "does",
    [
        {"cores": 0.2},  # it computes: what is to be saved is gathered
        {"io": 200_000},  # it writes
        {"census": {"futex": 3, "disk": 1}},  # it waits for a disk
        {"census": {"futex": 3, "sock": 1}},  # it uploads
        {"census": {"futex": 3, "timed": 1}},  # it waits for a thread that saves, or sleeps before it does
    ],
    ids=str,
)
def test_whose_handler_does_something_keeps_its_grace(stalling: Stalling, does: dict[str, object]) -> None:
    stalling.until_sigterm()
    vars(stalling.training.stuck_rates).update(does)

    assert stalling.until_sigkill() >= GRACE


@pytest.mark.parametrize("remote", [True, None])
def test_without_censuses_whoever_may_talk_to_a_remote_host_keeps_its_grace(
    stalling: Stalling, remote: bool | None
) -> None:
    without_censuses(stalling, remote=remote)
    stalling.until_sigterm()

    assert stalling.until_sigkill() >= GRACE


def test_a_grace_is_kept_while_a_checkpoint_is_written_and_a_little_after(stalling: Stalling) -> None:
    stalling.until_sigterm()
    for _ in range(12):
        stalling.sampled(Files(writing=True, path="a.ckpt"))
        stalling.silence(0.5)

    assert "KILL" not in stalling.signals()
    stalling.sampled(Files(writing=False, path="a.ckpt"))
    assert stalling.until_sigkill() < GRACE


def test_a_grace_is_kept_while_the_probe_saves(stalling: Stalling) -> None:
    stalling.until_sigterm()
    stalling.progress(phase="checkpoint", phase_at=stalling.now)

    assert stalling.until_sigkill() >= GRACE


def test_a_batch_that_ends_after_all_gives_the_grace_back(stalling: Stalling) -> None:
    stalling.until_sigterm()
    stalling.silence(WAIT - 1)
    stalling.progress(**stalling.training.train(stalling.now, 0.5))

    assert stalling.until_sigkill() >= GRACE


def test_who_trains_and_is_asked_to_end_keeps_its_grace(stalling: Stalling) -> None:
    stalling.ask("stop")

    assert stalling.until_sigkill() >= GRACE


def test_the_next_attempt_begins_at_once(stalling: Stalling) -> None:
    stalling.until_sigterm()
    stalling.until_sigkill()
    stalling.train(5)

    assert [event.code for event in stalling.events if isinstance(event, Exited)] == [-9]
    assert stalling.run is not None
    assert stalling.run.current.number == 2

"""Ends that were arranged: an hour of the day, and segments for scripts that leak."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.actions import Ask, Conclude, Launch, Signal
from stallguard.core.events import Exited, Heartbeat, ProbeConnected
from stallguard.core.limits import Limits
from stallguard.core.readings import Files
from stallguard.core.shutdown import REACTION_WAIT
from stallguard.errors import GAVE_UP, STOPPED_ON_TIME
from tests.simulation.program import Rates
from tests.simulation.simulation import LIMITS, Simulation

SEGMENTS: Limits = msgspec.structs.replace(LIMITS, segment=600.0, cool_down=30.0)

GRACE = 10.0
PATIENT = msgspec.structs.replace(LIMITS, stop=msgspec.structs.replace(LIMITS.stop, grace=GRACE))
LOCKED = {"futex": 4}


def code_of(world: Simulation) -> int | None:
    ends = [action.code for action in world.actions(Conclude)]
    return ends[0] if ends else None


def its_hour(world: Simulation) -> None:
    world.ask("finish", "it is 07:30")


def test_at_its_hour_the_training_is_asked_to_end_after_its_batch_and_no_signal_is_sent() -> None:
    world = Simulation()
    world.train(60)
    its_hour(world)

    assert world.actions(Ask) != []
    assert world.actions(Signal) == []
    assert code_of(world) == STOPPED_ON_TIME
    assert "run.end_is_due" in world.announced()


def test_one_that_does_not_answer_gets_a_signal_only_after_the_time_of_a_long_batch() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    began = world.now
    world.train(LIMITS.stop.batch_wait - 5)
    assert world.actions(Signal) == []

    world.train(10)
    assert [at - began >= LIMITS.stop.batch_wait for at, a in world.done if isinstance(a, Signal)] == [True]
    assert code_of(world) == STOPPED_ON_TIME


def test_a_training_that_finishes_just_then_has_finished() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    world.exit(0)

    assert code_of(world) == 0
    assert "run.finished" in world.announced()
    assert world.run.current.script_code == 0


@pytest.mark.parametrize("code", [STOPPED_ON_TIME, GAVE_UP])
def test_a_script_with_a_code_of_stallguards_own_ends_is_told_from_them(code: int) -> None:
    by_itself = Simulation()
    by_itself.train(60)
    by_itself.exit(code)
    assert (code_of(by_itself), by_itself.run.current.script_code) == (code, code)
    assert "run.failed" in by_itself.announced()
    asked = Simulation()
    asked.train(60)
    its_hour(asked)
    asked.train(60)
    assert (code_of(asked), asked.run.current.script_code) == (STOPPED_ON_TIME, None)
    assert "run.paused" in asked.announced()


def test_a_signal_is_no_exit_code_of_the_script() -> None:
    world = Simulation(msgspec.structs.replace(LIMITS, observe=True))
    world.train(60)
    world.exit(-11)
    assert (code_of(world), world.run.current.script_code) == (139, None)


def test_a_script_that_fails_at_its_hour_has_failed_and_is_judged_as_at_any_other() -> None:
    world = Simulation(ends_if_asked=False)
    world.train(60)
    its_hour(world)
    world.exit(1)

    assert code_of(world) == 1


def test_a_stalled_training_is_ended_at_its_hour_at_once() -> None:
    patient = msgspec.structs.replace(LIMITS, observe=True)
    world = Simulation(patient)
    world.train(60)
    world.silent(300)
    its_hour(world)

    assert world.actions(Signal) != []
    assert code_of(world) == STOPPED_ON_TIME


@pytest.mark.parametrize("stuck", [True, False], ids=["a stall", "a segment"])
def test_an_hour_that_comes_while_an_attempt_is_ended_for_the_next_is_the_end(stuck: bool) -> None:
    limits = LIMITS if stuck else SEGMENTS
    world = Simulation(limits, ends_on_term=False, ends_on_kill=stuck, ends_if_asked=False)
    world.train(60)
    while world.alive and world.run.current.decision is None:
        (world.silent if stuck else world.train)(0.5)
    its_hour(world)
    world.exit(-15)

    assert code_of(world) == STOPPED_ON_TIME
    assert len(world.actions(Launch)) == 1


@pytest.mark.costly
def test_a_run_between_two_attempts_ends_at_its_hour() -> None:
    world = Simulation(SEGMENTS)
    world.train(605)
    assert not world.alive
    its_hour(world)

    assert code_of(world) == STOPPED_ON_TIME


class Resuming(Simulation):
    """Whose training goes on where the attempt before it ended."""

    def first_record(self) -> dict[str, int]:
        records = [event for event in self.events if isinstance(event, Heartbeat)]
        return {"batch": records[-1].batch} if records else {}


class Alike(Simulation):
    """Whose training begins at the start each time and comes a little further each time, by chance."""

    def first_record(self) -> dict[str, int]:
        return {"batch": 3 * self.attempt}


class Silent(Simulation):
    """Whose loop counts its own batches, and says nothing of where it stands."""

    def first_record(self) -> dict[str, object]:
        return {"epoch": -1, "batch": -1, "batches": -1, "source": "hand"}


SHORT = msgspec.structs.replace(SEGMENTS, segment=60.0, cool_down=1.0)


@pytest.mark.parametrize("kind", [Simulation, Alike, Silent])
def test_a_segment_that_came_no_further_is_the_last_one(kind) -> None:
    world = kind(SHORT)
    world.train(600)

    assert len(world.actions(Launch)) == 2
    [end] = world.actions(Conclude)
    assert end.code == GAVE_UP
    assert "no new progress" in end.why


def test_a_segment_without_a_batch_is_the_last_one() -> None:
    world = Simulation(msgspec.structs.replace(SHORT, segment=2.0), several=True)
    world.tell(ProbeConnected, attempt=1, pid=7, armed=True)
    world.silent(60)

    assert len(world.actions(Launch)) == 1
    assert code_of(world) == GAVE_UP


@pytest.mark.costly
def test_a_loop_that_writes_checkpoints_of_its_own_may_go_on_in_its_next_segment() -> None:
    world = Silent(SHORT)
    for _ in range(60):
        world.train(10)
        world.sampled(Files(writing=True))

    assert len(world.actions(Launch)) > 5
    assert code_of(world) is None


@pytest.mark.costly
def test_a_segment_ends_after_its_time_and_the_next_resumes_after_the_pause() -> None:
    world = Resuming(SEGMENTS)
    world.train(3 * 640)

    launches = [(at, action) for at, action in world.done if isinstance(action, Launch)]
    assert [action.resume for _, action in launches] == [False, True, True, True]
    assert launches[1][0] - launches[0][0] >= SEGMENTS.segment + SEGMENTS.cool_down
    assert world.actions(Signal) == []


@pytest.mark.costly
def test_segments_do_not_use_up_the_restarts() -> None:
    world = Resuming(SHORT)
    world.train(20 * 62)

    assert len(world.actions(Launch)) > LIMITS.policy.max_restarts * 5
    assert code_of(world) is None


def test_a_training_that_finishes_in_a_segment_is_not_started_again() -> None:
    world = Simulation(SEGMENTS)
    world.train(100)
    world.exit(0)

    assert code_of(world) == 0
    assert len(world.actions(Launch)) == 1


def two_at_their_hour() -> Simulation:
    run = Simulation(several=True, ends_if_asked=False)
    run.start(11)
    run.start(12)
    run.go_on(20)
    run.ask("finish", "it is 07:30")
    return run


def signals(run: Simulation) -> list[str]:
    return [action.name for _, action in run.done if isinstance(action, Signal)]


def test_trainings_that_were_saved_and_wait_are_ended_together_at_once() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    assert signals(run) == [], "the other one still trains its batch"

    run.note("stop", "saved", pid=12, saved="1")
    assert signals(run) == ["TERM"]
    assert run.run.code == STOPPED_ON_TIME


def test_a_script_that_was_not_saved_goes_on_to_its_own_end() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    run.note("stop", "asked Keras to end this fit", pid=12)
    run.go_on(5)
    assert signals(run) == []


def test_a_launcher_that_fails_because_its_saved_training_was_ended_has_not_failed() -> None:
    run = two_at_their_hour()
    run.note("stop", "saved", pid=11, saved="1")
    run.exit(1)
    assert run.run.code == STOPPED_ON_TIME


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
    return stuck()


def stuck(*, remote: bool | None = False) -> Stalling:
    world = Stalling(PATIENT, ends_on_term=False)
    world.training.tree = msgspec.structs.replace(world.tree, remote=remote)
    world.train(60)
    one = world.training
    one.stuck_rates = Rates(cores=0.0, census=LOCKED)
    one.tree = msgspec.structs.replace(one.tree, disk=0, threads=4, main_site="futex")
    return world


def without_censuses(stalling: Stalling, **facts: object) -> None:
    one = stalling.training
    one.stuck_rates = Rates(cores=0.0)
    one.tree = msgspec.structs.replace(one.tree, main_site=None, **facts)


def test_who_only_notes_sigterm_in_a_deadlock_is_not_waited_for(stalling: Stalling) -> None:
    stalling.until_sigterm()

    assert REACTION_WAIT <= stalling.until_sigkill() < REACTION_WAIT + 1
    assert "attempt.sigterm_unused" in stalling.announced()
    assert "attempt.killing" not in stalling.announced()


def test_without_censuses_an_idle_process_without_connections_is_not_waited_for(stalling: Stalling) -> None:
    without_censuses(stalling, disk=None)
    stalling.until_sigterm()

    assert REACTION_WAIT <= stalling.until_sigkill() < REACTION_WAIT + 1


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
def test_without_censuses_whoever_may_talk_to_a_remote_host_keeps_its_grace(remote: bool | None) -> None:
    stalling = stuck(remote=remote)
    without_censuses(stalling)
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
    stalling.silence(REACTION_WAIT - 1)
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

"""The core as a whole: any history of events, and what may never follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stallguard.core import fold, lifecycle
from stallguard.core.actions import Action, Announce, Collect, Conclude, Launch, Signal
from stallguard.core.events import Collected, Exited, Matched, ProbeNote, Ticked, Unkillable, UserCommand
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.run import beats
from stallguard.errors import GAVE_UP
from stallguard.storage import journal
from stallguard.supervisor.live_status import snapshot
from stallguard.supervisor.notices import journal_line
from tests import examples
from tests.simulation.program import Program
from tests.simulation.simulation import LIMITS, Simulation


def test_a_stall_is_recorded_ended_and_restarted() -> None:
    world = Simulation()
    world.train(60)
    world.silent(120)

    order = [type(a).__name__ for _, a in world.done if isinstance(a, Collect | Signal | Launch)]
    assert order[:4] == ["Launch", "Collect", "Signal", "Launch"]
    second = world.actions(Launch)[1]
    assert second.resume


@pytest.mark.costly
def test_observing_tells_and_never_acts() -> None:
    world = Simulation(msgspec.structs.replace(LIMITS, observe=True))
    world.train(60)
    world.silent(3600)

    assert world.actions(Signal) == []
    assert "training.stalled" in world.announced()
    assert "stall.observed" in world.announced()


def test_a_stall_right_after_a_late_record_tells_its_own_gap() -> None:
    """A record that comes late ends the doubt, with progress of some time ago; what follows is another gap."""
    world = Simulation()
    world.train(60)
    world.silent_until("suspect", "deadlock")
    world.progress(progress_at=world.now - 0.5)
    assert world.detector_state.judgement.step == "recovering"
    began = world.now - 0.5
    world.silent(10.0, "deadlock")

    at = next(at for at, what in world.done if isinstance(what, Announce) and what.message == "training.stalled")
    told = float(world.facts_of("training.stalled")[0]["gap"].split()[0])
    assert told == pytest.approx(at - began, abs=0.6)


def test_observing_restarts_no_training_that_crashed() -> None:
    world = Simulation(msgspec.structs.replace(LIMITS, observe=True))
    world.train(60).exit(-11)

    assert len(world.actions(Launch)) == 1
    assert world.actions(Conclude)[0].code == 128 + 11


def test_a_crash_of_a_muted_run_is_restarted() -> None:
    world = Simulation()
    world.train(60)
    world.ask("mute", "1800").exit(-11)
    world.go_on(5)

    assert len(world.actions(Launch)) == 2


@pytest.mark.costly
def test_a_run_that_is_muted_is_judged_but_left_alone_for_as_long() -> None:
    world = Simulation()
    world.train(60)
    world.ask("mute", "600")
    assert world.announced()[-1] == "stalls.muted"
    assert snapshot("r", world.run, world.now).muted == 600.0
    world.silent(500)
    assert world.actions(Signal) == []
    world.silent(200)
    assert world.actions(Signal) != []


def test_one_that_goes_on_before_it_is_acted_upon_has_recovered() -> None:
    patient = msgspec.structs.replace(LIMITS, detector=DetectorLimits(patience=0.2, act_after=600.0))
    world = Simulation(patient)
    world.train(60)
    world.silent(20)
    world.train(30)

    assert world.actions(Signal) == []
    assert "training.recovered" in world.announced()
    assert world.run.state == lifecycle.RUNNING


@pytest.mark.costly
def test_a_probe_that_stepped_aside_leaves_a_run_that_is_reported_and_never_ended() -> None:
    world = Simulation()
    world.train(60)
    world.training.record = msgspec.structs.replace(world.heartbeat, aside=True)
    world.silent(4000)

    assert world.actions(Signal) == []
    assert "training.stalled" in world.announced()


def test_what_is_not_exact_is_said_and_the_training_goes_on() -> None:
    world = Simulation()
    world.train(10)
    world.feed(ProbeNote(at=world.now, attempt=1, kind="inexact", text="fit 1 starts over"))
    assert world.actions(Signal) == []
    assert [a.facts for a in world.actions(Announce) if a.message == "attempt.inexact"] == [
        {"text": "fit 1 starts over"}
    ]


def test_a_training_that_must_not_go_on_inexactly_ends_the_run() -> None:
    world = Simulation()
    world.train(10)
    world.feed(ProbeNote(at=world.now, attempt=1, kind="inexact-stop", text="the data differ"))
    assert [a.name for a in world.actions(Signal)] == ["TERM"]
    world.feed(Exited(at=world.now, attempt=1, code=-15))
    assert len(world.actions(Launch)) == 1
    assert world.actions(Conclude) == [Conclude(code=GAVE_UP, why="the data differ")]


def test_a_dump_that_was_asked_for_is_reported_and_judges_nothing() -> None:
    world = Simulation()
    world.train(60)
    before = len(world.done)
    world.ask("dump")

    assert [action for _, action in world.done[before:]] == [
        Collect(incident=0, attempt=1), Announce("evidence.dumped", {"where": "dumps", "line": ""}),
    ]  # fmt: skip
    assert world.run.history.collected is None, "a later silence is not judged by it"


def test_a_dump_does_not_stand_for_the_evidence_of_the_stall() -> None:
    world = Simulation(evidence=False)
    world.train(60)
    world.silent(40)
    world.feed(Collected(at=world.now, incident=0, seconds=0.1))

    assert world.run.state == lifecycle.COLLECTING


def test_a_stubborn_child_gets_sigkill_after_its_grace_and_not_before() -> None:
    world = Remote(ends_on_term=False)
    world.train(60)
    world.silent(120)

    signals = [(at, action.name) for at, action in world.done if isinstance(action, Signal)]
    assert [name for _, name in signals[:2]] == ["TERM", "KILL"]
    assert signals[1][0] - signals[0][0] >= LIMITS.stop.grace


def test_a_child_that_cannot_be_killed_is_reported_not_waited_for() -> None:
    world = Simulation(ends_on_term=False, ends_on_kill=False)
    world.train(60)
    world.silent(200)

    assert world.run.state == lifecycle.FAILED
    assert "attempt.unkillable" in world.announced()
    assert len(world.actions(Launch)) == 1


def test_a_sticky_gpu_error_is_acted_upon_although_batches_seem_to_end() -> None:
    world = Simulation()
    world.train(60)
    line = "Ignored (for causing prior/excessive GPU errors) (IOAF code 4)"
    world.feed(Matched(at=world.now, signature="iogpu_ignored", family="GPU_FAULT_STICKY", line=line))
    world.train(3)

    assert len(world.actions(Launch)) == 2
    order = [type(a).__name__ for _, a in world.done if isinstance(a, Collect | Signal)]
    assert order[0] == "Collect"


@pytest.mark.parametrize(("code", "ours"), [(0, 0), (3, 3), (-2, 130)])
def test_the_childs_own_end_is_the_runs_end(code: int, ours: int) -> None:
    world = Simulation()
    world.train(30)
    world.ask("interrupt")
    world.exit(code)

    [end] = world.actions(Conclude)
    assert end.code == ours


@pytest.mark.parametrize("verb", ["", "restart", "stop"])
def test_after_an_end_that_no_process_saw_nothing_is_started(verb: str) -> None:
    world = Simulation(ends_on_term=False)
    world.train(60)
    if verb:
        world.ask(verb)

    world.feed(Exited(at=world.now, attempt=1, code=0, known=False))
    assert world.run.state == lifecycle.DONE
    assert (world.run.code, len(world.actions(Launch))) == (GAVE_UP, 1)


def test_a_restart_that_was_asked_for_does_not_make_the_first_ctrl_c_deadly() -> None:
    world = Simulation()
    world.ask("restart")
    world.train(5)
    world.ask("interrupt")

    assert [action.name for action in world.actions(Signal)] == ["TERM", "INT"]


def test_a_stop_holds_although_the_attempt_is_being_ended_for_a_restart() -> None:
    world = Simulation(ends_on_term=False)
    world.ask("restart")
    world.ask("stop")
    world.train(60)

    assert len(world.actions(Launch)) == 1, "what the service manager waits for must not be started anew"
    assert len(world.actions(Conclude)) == 1


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_restart_says_if_it_begins_from_scratch(checkpoints: bool) -> None:
    world = Simulation(checkpoints=checkpoints)
    world.ask("restart")
    world.train(5)

    assert ("attempt.from_scratch" in world.announced()) is not checkpoints


def test_a_restart_from_scratch_uses_no_checkpoint() -> None:
    world = Simulation()
    world.ask("restart", "from scratch")
    world.train(5)

    assert [action.resume for action in world.actions(Launch)] == [False, False]
    assert "attempt.from_scratch" in world.announced()


def test_batches_of_all_attempts_are_added_up() -> None:
    world = Simulation()
    world.train(60)
    world.silent(120)
    world.train(10)

    assert beats(world.run) == 120 + world.training.beats


# ---- whatever happens -----------------------------------------------------------------------------------------

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("train"), st.floats(1, 60)),
        st.tuples(st.just("stuck"), st.floats(1, 120)),
        st.tuples(st.just("exit"), st.sampled_from([0, 1, -9, -11, -6, 137])),
        st.tuples(st.just("ask"), st.sampled_from(["interrupt", "stop", "restart", "mute", "dump", "nonsense"])),
        st.tuples(st.just("sleep"), st.floats(1, 40000)),
        st.tuples(st.just("back"), st.floats(0, 1000)),
        st.tuples(st.just("late"), st.integers(0, 3)),
    ),
    max_size=12,
)


class Remote(Simulation):
    """A job that can talk to another host: SIGKILL never comes before its grace is over."""

    def start(self, *words: Any, **more: Any) -> Program:
        program = super().start(*words, **more)
        program.tree = msgspec.structs.replace(program.tree, remote=None)
        return program


def live(world: Simulation, steps: list[tuple[str, object]]) -> Simulation:
    for what, value in steps:
        _STEPS[what](world, value)
    return world


def _sleep(world: Simulation, seconds: float) -> None:
    world.sleep(seconds, clock_runs=True)


def _late(world: Simulation, attempt: int) -> None:
    world.feed(Exited(at=world.now, attempt=attempt, code=0)) if attempt == 0 else world.feed(
        Unkillable(at=world.now, attempt=attempt - 1)
    )


_STEPS = {
    "train": lambda world, value: world.train(value), "stuck": lambda world, value: world.silent(value),
    "exit": lambda world, value: world.exit(value), "ask": lambda world, value: world.ask(value), "sleep": _sleep,
    "back": lambda world, value: world.feed(Ticked(at=world.now - value)), "late": _late,
}  # fmt: skip


def incidents_before_signals(world: Simulation) -> None:
    """By ourselves we signal nobody whose evidence is not on disk."""
    evidence = False
    asked = any(isinstance(event, UserCommand) for event in world.events)
    for _, action in world.done:
        evidence = not isinstance(action, Launch) and (evidence or isinstance(action, Collect))
        if isinstance(action, Signal) and not asked:
            assert evidence


def kill_only_after_term(world: Simulation) -> None:
    term: float | None = None
    asked = sum(isinstance(event, UserCommand) and event.verb in ("interrupt", "stop") for event in world.events)
    for at, action in world.done:
        if isinstance(action, Launch):
            term = None
        if isinstance(action, Signal) and action.name == "TERM":
            term = at
        if isinstance(action, Signal) and action.name == "KILL" and asked < 2:
            assert term is not None
            assert at - term >= world.limits.stop.grace


def restarts_within_budget(world: Simulation) -> None:
    if any(isinstance(event, UserCommand) and event.verb == "restart" for event in world.events):
        return  # the user's own restarts are not counted against the budget
    starts = [at for at, action in world.done if isinstance(action, Launch)][1:]
    window, most = world.limits.policy.restart_window, world.limits.policy.max_restarts
    for at in starts:
        assert sum(at - window < other <= at for other in starts) <= most


def nothing_after_the_end(world: Simulation) -> None:
    ends = [index for index, (_, action) in enumerate(world.done) if isinstance(action, Conclude)]
    assert len(ends) <= 1
    assert not ends or ends[0] == len(world.done) - 1


@settings(max_examples=examples.of(60, fast=10))
@example([("exit", -9), ("exit", -9), ("train", 1.0), ("stuck", 29.0), ("exit", -9)], False, True)
@given(STEPS, st.booleans(), st.booleans())
def test_whatever_happens_the_promises_hold(
    steps: list[tuple[str, object]], ends_on_term: bool, ends_on_kill: bool
) -> None:
    world = live(Remote(ends_on_term=ends_on_term, ends_on_kill=ends_on_kill), steps)

    incidents_before_signals(world)
    kill_only_after_term(world)
    restarts_within_budget(world)
    nothing_after_the_end(world)


@settings(max_examples=examples.of(30, fast=5))
@given(STEPS)
def test_replaying_a_journal_gives_the_recorded_actions(tmp_path_factory, steps: list[tuple[str, object]]) -> None:
    world = live(Simulation(), steps)
    path: Path = tmp_path_factory.mktemp("replay") / "journal.jsonl"
    book = journal.Journal(path, lambda _: None)
    for event in world.events:
        book.write(event.at, *journal_line(event))
    book.close()

    run, again = fold.begin(100.0), [Launch(attempt=1)]
    for event in journal.events(path):
        run, actions = fold.advance(run, event, LIMITS)
        again += actions

    def as_set(actions: list[Action]) -> list[bytes]:
        return sorted(msgspec.json.encode(action) for action in actions)

    assert as_set(again) == as_set([action for _, action in world.done])


@settings(max_examples=examples.of(30, fast=5))
@given(st.floats(0.05, 30), st.floats(0, 2))
def test_a_steady_training_is_never_called_stalled(every: float, jitter: float) -> None:
    world = Simulation(Limits())
    for number in range(60):
        world.train(every * (1 + jitter * (number % 3)), every=every)

    assert "training.stalled" not in world.announced()


def test_what_is_only_notified_of_announces_no_act() -> None:
    policy = msgspec.structs.replace(LIMITS.policy, on_stall="notify")
    world = Simulation(msgspec.structs.replace(LIMITS, policy=policy))
    world.train(60)
    world.silent(120)

    assert "stall.deferred" not in world.announced()
    [left] = [one for one in world.actions(Announce) if one.message == "stall.left_alone"]
    assert left.facts["why"] == "the setting policy.on_stall asks for a notification and nothing else"
    assert world.actions(Signal) == []

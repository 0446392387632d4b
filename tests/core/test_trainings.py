"""Simulation trainings in one run: each is judged as if it were alone, and one of them is in focus."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.core import fold, lifecycle, trainings
from stallguard.core.actions import Collect, Launch, Signal
from stallguard.core.events import (
    ClockGap,
    Collected,
    Event,
    Heartbeat,
    Launched,
    ProbeConnected,
    ProbeNote,
    ProcessLeft,
    Sampled,
    Ticked,
)
from stallguard.core.limits import DetectorLimits, Limits
from stallguard.core.readings import Device, Machine, Memory, Process
from stallguard.core.run import OUTSIDE, Run, Training, beats
from tests import examples
from tests.simulation.program import Rates
from tests.simulation.simulation import LIMITS, Simulation

OBSERVING = replace(LIMITS, observe=True)


@pytest.mark.costly
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "spinning"])
def test_a_training_that_trains_on_hides_no_stall_beside_it_and_delays_none(busy: bool) -> None:
    alone, both = Simulation(several=True), Simulation(several=True)
    both.start(11, 0.05)
    for world in (alone, both):
        world.start(12, 0.5)
        world.go_on(60)
        world.programs[12].stuck = True
        world.programs[12].stuck_rates = Rates(cores=0.9 * busy)
        world.go_on(400)

    stalled = both.when(Collect)[0]
    assert stalled == pytest.approx(alone.when(Collect)[0], abs=1.0)
    assert both.when(Signal)[0] == pytest.approx(alone.when(Signal)[0], abs=1.0)
    assert both.facts_of("training.stalled")[0]["silence"].startswith("training 2 (t.py 12, pid 12): no progress for ")
    assert both.facts_of("training.stalled")[0]["pid"] == "12"


def test_the_one_that_stalls_comes_into_focus_and_stays_there_while_its_incident_lasts() -> None:
    world = Simulation(OBSERVING, several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.programs[11].stuck = True
    world.go_on(60)

    assert world.run.training.pid == 11
    assert world.run.state == lifecycle.HOLDING
    world.programs[12].stuck = True
    world.go_on(60)
    assert world.run.training.pid == 11
    assert [facts["pid"] for facts in world.facts_of("training.also_stalled")] == ["12"]
    world.programs[11].stuck = False
    world.go_on(10)
    assert (world.run.training.pid, world.run.totals.incidents) == (12, 2)


@pytest.mark.costly
def test_healthy_trainings_of_very_different_paces_raise_no_suspicion() -> None:
    world = Simulation(several=True)
    world.start(11, 0.01), world.start(12, 4.0)
    world.go_on(900)

    assert world.facts_of("training.suspected") == world.facts_of("training.stalled") == []
    assert {one.pid for one in trainings.judged(world.run)} == {11, 12}


@pytest.mark.costly
def test_a_launcher_is_never_taken_for_a_training_however_long_it_waits() -> None:
    world = Simulation(several=True)
    world.start(10, batch=0.0)  # it imports torch, say, and launches
    world.start(11)
    world.go_on(7200, tick=4.0)

    assert world.facts_of("training.suspected") == []
    assert world.run.training.pid == 11
    assert not world.run.current.begun > 1


@pytest.mark.costly
def test_a_launcher_that_hangs_between_two_trainings_is_caught_from_then_on() -> None:
    """Two minutes of deadlock are too long for a script's own code; its wait for the training before counts nothing."""
    limits = replace(LIMITS, detector=DetectorLimits(patience=1.0, act_after=30.0))
    world = Simulation(limits, several=True)
    launcher = world.start(10, batch=0.0)
    world.start(11)
    world.go_on(600, tick=1.0)
    world.leave(11)
    world.go_on(60)

    assert world.run.training.pid == launcher.pid
    assert world.facts_of("training.stalled") == []
    world.go_on(2000)
    assert world.facts_of("training.stalled")[0]["pid"] == "10"


@pytest.mark.costly
def test_the_time_in_which_a_launcher_waited_for_a_training_is_no_silence_of_its_own() -> None:
    world = Simulation(several=True)
    world.start(10, batch=0.0, record={"phase": "named"})  # with stallguard.phase("sweep"): ...
    world.start(11)
    world.go_on(4000, tick=1.0)
    world.leave(11)
    world.start(12, batch=0.0)
    world.leave(12)
    world.go_on(60)

    assert world.run.training.pid == 10
    assert world.facts_of("training.suspected") == world.facts_of("training.stalled") == []


def test_the_newest_process_is_judged_while_no_process_has_trained() -> None:
    world = Simulation(several=True)
    world.start(10, batch=0.0)
    world.start(11, batch=1000.0)  # it imports
    world.go_on(10)

    assert world.run.training.pid == 11
    world.leave(11)
    assert world.run.training.pid == 10


@pytest.mark.costly
def test_an_import_that_hangs_is_a_stall_and_one_that_is_ended_is_none_any_more() -> None:
    world = Simulation(replace(OBSERVING, detector=DetectorLimits()), several=True)
    world.start(11, batch=1000.0)
    world.go_on(1900)
    assert (world.facts_of("training.stalled")[0]["pid"], world.run.state) == ("11", lifecycle.HOLDING)
    world.leave(11, "vanished")
    world.start(12)
    world.go_on(5)

    assert (world.run.training.pid, world.run.state) == (12, lifecycle.RUNNING)


def test_trainings_one_after_the_other_are_summed_and_each_leaves_a_record() -> None:
    world = Simulation(several=True)
    for pid in (11, 12, 13):
        world.start(pid)
        world.go_on(20)
        world.leave(pid, "failed" if pid == 12 else "ended")
    world.exit(0)

    assert [(one.number, one.pid, one.place, one.how) for one in world.run.current.over] == [
        (1, 11, "place-11", "ended"), (2, 12, "place-12", "failed"), (3, 13, "place-13", "ended"),
    ]  # fmt: skip
    assert [one.batches for one in world.run.current.over] == [40, 40, 40]
    assert [round(one.seconds) for one in world.run.current.over] == [20, 20, 20]
    assert beats(world.run) == 120
    assert ", 3 trainings" in world.facts_of("run.finished")[0]["trouble"]


def test_batches_of_all_trainings_and_attempts_are_counted_once() -> None:
    world = Simulation(several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.programs[12].stuck = True
    world.go_on(200)
    sums = beats(world.run)
    assert len(world.actions(Launch)) == 2
    world.start(21)
    world.go_on(10)

    assert beats(world.run) == sums + 20
    assert world.run.totals.beats == sums


@pytest.mark.costly
def test_a_stall_of_the_second_of_three_is_no_fruitless_restart_as_long_as_it_comes_further() -> None:
    world = Simulation(several=True)
    for attempt in range(4):
        world.start(11, place="a-1")
        world.go_on(60)
        world.leave(11)
        second = world.start(12, place="b-1")
        world.go_on(60 + 10 * attempt)
        second.stuck = True
        world.go_on(200)

    assert [attempt.fresh for attempt in world.run.past.attempts][:3] == [True, True, True]


def test_one_that_vanishes_is_reported_and_the_others_are_judged_on() -> None:
    world = Simulation(several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.leave(11, "vanished")
    world.go_on(60)
    world.programs[12].stuck = True
    world.go_on(60)

    assert world.facts_of("process.vanished")[0]["who"] == "training 1 (t.py 11, pid 11)"
    assert world.facts_of("training.stalled")[0]["pid"] == "12"


def test_a_stalled_training_that_a_user_ends_is_an_incident_no_longer() -> None:
    world = Simulation(OBSERVING, several=True)
    world.start(11), world.start(12)
    world.go_on(60)
    world.programs[11].stuck = True
    world.go_on(60)
    assert world.run.state == lifecycle.HOLDING
    world.leave(11, "vanished")
    world.go_on(5)

    assert (world.run.state, world.run.training.pid) == (lifecycle.RUNNING, 12)
    assert world.facts_of("training.recovered") == []


def test_evidence_that_comes_after_its_training_left_is_still_about_that_one() -> None:
    world = Simulation(OBSERVING, several=True, evidence=False)
    world.start(11), world.start(12)
    world.go_on(60)
    world.programs[11].stuck = True
    world.go_on(60)
    assert world.run.state == lifecycle.COLLECTING
    world.leave(11, "vanished")
    world.go_on(5)

    assert world.run.training.pid == 11
    world.feed(Collected(at=world.now, incident=1, seconds=1.0))
    world.go_on(1)
    assert (world.run.state, world.run.training.pid) == (lifecycle.RUNNING, 12)


def test_the_end_of_an_attempt_is_explained_by_the_training_that_left_last() -> None:
    """A launcher whose training crashed ends with a code that says nothing: what the training did says more."""
    world = Simulation(several=True)
    world.start(10, batch=0.0)
    world.start(11)
    world.go_on(60)
    world.leave(11, "failed")
    world.go_on(1)
    world.exit(1)

    assert world.run.training.pid == 11
    assert world.run.past.attempts[-1].phase == "step"


def test_a_program_that_replaces_itself_is_another_training_of_the_same_number() -> None:
    world = Simulation(several=True)
    world.start(11)
    world.go_on(30)
    world.leave(11, "replaced")
    world.start(11)
    world.go_on(30)

    assert beats(world.run) == 120
    assert [one.number for one in trainings.judged(world.run)] == [2]


def test_what_a_training_taught_serves_the_same_training_of_the_next_attempt_and_no_other() -> None:
    world = Simulation(several=True)
    world.start(11, 0.05, place="a-1"), world.start(12, 2.0, place="b-1")
    world.go_on(120)
    world.exit(-11)
    world.go_on(10)
    again, other = world.start(21, 2.0, place="b-1"), world.start(22, place="c-1")
    detectors = {one.pid: one.detector_state for one in world.run.current.trainings}

    assert detectors[again.pid].rows["STEP"].longest == pytest.approx(2.0)
    assert detectors[other.pid].rows == {}


def test_of_several_trainings_a_note_says_whose_it_is() -> None:
    world = Simulation(several=True)
    world.start(11)
    world.go_on(2)
    world.note("resume", "alone", pid=11)
    world.start(12)
    world.go_on(2)
    world.note("resume", "beside", pid=12)

    assert [facts["text"] for facts in world.facts_of("attempt.resumed")] == [
        "alone",
        "training 2 (t.py 12, pid 12): beside",
    ]


def test_what_is_not_exact_is_reported() -> None:
    world = Simulation(several=True)
    world.start(11)
    world.note("inexact", "the order of the data is not known", pid=11)

    assert world.facts_of("attempt.inexact") == [{"text": "the order of the data is not known"}]


@pytest.mark.costly
def test_a_few_thousand_trainings_leave_a_small_value() -> None:
    run = fold.begin(0.0)
    run, _ = fold.advance(run, Launched(at=0.0, attempt=1, pid=1), LIMITS)
    for pid in range(2, 2000):
        at = float(pid)
        run, _ = fold.advance(run, Heartbeat(at=at, attempt=1, pid=pid, trains=True, beats=3), LIMITS)
        place = ProbeConnected(at=at, attempt=1, pid=pid, place=f"place-{pid}")
        run, _ = fold.advance(run, place, LIMITS)
        run, _ = fold.advance(run, ProcessLeft(at=at, attempt=1, pid=pid, how="ended"), LIMITS)

    assert len(msgspec.msgpack.encode(run)) < 200_000
    assert (run.current.begun, beats(run)) == (1998, 3 * 1998)


# ---- each as if it were alone --------------------------------------------------------------------------------

MINE, OTHERS = 11, 12
moments = st.floats(0.0, 60.0, allow_nan=False)


@st.composite
def words(draw: st.DrawFn, pid: int) -> list[Event]:
    """What one training says, and what is measured of it."""
    found: list[Event] = []
    beats_so_far = 1
    for at in sorted(draw(st.lists(moments, min_size=1, max_size=25))):
        beats_so_far += draw(st.integers(0, 40))
        phase = draw(st.sampled_from(["step", "between", "input", "validation", "checkpoint"]))
        found.append(
            Heartbeat(
                at=at, attempt=1, pid=pid, trains=True, beats=beats_so_far, beat_at=at, progress_at=at, phase=phase,
                changes=2 * beats_so_far, longest=draw(st.floats(0.0, 5.0)), fits=1, fit_beats=beats_so_far,
                epoch=0, batch=beats_so_far, source="callbacks", sent_at=at,
            )
        )  # fmt: skip
    for at in draw(st.lists(moments, max_size=25)):
        cpu, census = draw(st.floats(0.0, 100.0)), draw(st.sampled_from([None, {"futex": 3}, {"poll": 1}]))
        reading = Process(pid=pid, state="sleeping", cpu=cpu, io=0, minor_faults=0, census=census)
        found.append(Sampled(at=at, reading=reading))
    found.append(ProbeConnected(at=draw(moments), attempt=1, pid=pid, place=f"place-{pid}"))
    found.append(ProbeNote(at=draw(moments), attempt=1, pid=pid, kind="batch", text="", facts={"rows": "32"}))
    return found


@st.composite
def weather(draw: st.DrawFn) -> list[Event]:
    """What concerns the whole run, and a tick each half second."""
    found: list[Event] = [Ticked(at=half / 2) for half in range(121)]
    for at in draw(st.lists(moments, max_size=10)):
        reading = draw(st.sampled_from([Machine(idle=0.5), Memory(available=1), Device(used_by_run=True, moved=True)]))
        found.append(Sampled(at=at, reading=reading))
    found += [ClockGap(at=at, seconds=5.0) for at in draw(st.lists(moments, max_size=2))]
    return found


def observed(events: list[Event]) -> Training:
    run: Run = fold.begin(0.0)
    run = trainings.observe(run, Launched(at=0.0, attempt=1, pid=1), Limits().detector)
    for event in sorted(events, key=lambda event: event.at):
        run = trainings.focused(trainings.observe(replace(run, now=event.at), event, Limits().detector))
    return next(one for one in run.current.trainings if one.pid == MINE)


@pytest.mark.costly
@settings(max_examples=examples.of(60, fast=10))
@given(words(MINE), words(OTHERS), weather())
def test_beside_another_a_training_is_judged_as_if_it_were_alone(
    mine: list[Event], others: list[Event], shared: list[Event]
) -> None:
    alone, beside = observed(mine + shared), observed(mine + others + shared)

    assert beside.detector_state == alone.detector_state
    assert beside.history == alone.history


def test_a_run_without_a_probe_is_seen_from_outside() -> None:
    world = Simulation(several=True)
    world.go_on(10)

    assert (world.run.current.focus, world.run.training.pid) == (OUTSIDE, 0)
    assert world.run.detector_state.judgement.row == "OUTSIDE"


def test_what_a_signal_wakes_is_no_pause_of_a_healthy_training() -> None:
    """A wait that ends because the attempt is ended must not make the next stall wait for as long."""
    world = Simulation(ends_on_term=False, ends_on_kill=False)
    world.train(60)
    world.silent_until("stalled", "socket")
    while not world.actions(Signal):
        world.silent(1.0, "socket")
    before = world.detector_state.rows
    world.progress(**world.training.train(world.now, 30.0, 1))

    assert world.detector_state.rows == before

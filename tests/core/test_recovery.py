"""A run that is rebuilt from its events is the run that was, and one on a new clock forgets no count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.core import fold, ledger, lifecycle, recovery
from stallguard.core.actions import Launch
from stallguard.core.events import Event, Exited, Heartbeat, Launched, SupervisorRestarted, Ticked
from stallguard.core.limits import Limits
from stallguard.core.run import beats
from stallguard.core.time_spent import total
from tests.simulation.simulation import Simulation

LIMITS = Limits()


def night(attempts: int = 2, steps: int = 20) -> list[Event]:
    """Events of a run whose attempts but the last were killed; the last trains on."""
    run = Simulation(LIMITS, tick=1.0, batch=1.0, pid=11).train(steps)
    for _ in range(1, attempts):
        run.exit(-9).wait(1).train(steps)
    return run.events


def test_an_event_that_the_core_could_not_take_then_is_passed_over_again(monkeypatch):
    events, whole = night(), fold.advance

    def broken(run, event, limits):
        if getattr(event, "beats", 0):  # of Heard
            raise RuntimeError("a mistake of ours")
        return whole(run, event, limits)

    monkeypatch.setattr(fold, "advance", broken)
    run = recovery.rebuilt(events, LIMITS)

    assert run is not None
    assert (run.current.number, run.current.pid, run.state) == (2, 12, lifecycle.WARMING)


def folded(events):
    run = fold.begin(events[0].at)
    for event in events:
        run, _ = fold.advance(run, event, LIMITS)
    return run


@pytest.mark.costly
@given(st.integers(min_value=1, max_value=len(night())))
def test_cut_anywhere_the_rebuilt_run_is_the_run_that_was(cut):
    events = night()[:cut]
    assert recovery.rebuilt(events, LIMITS) == folded(events)


def test_the_time_that_the_first_launch_took_is_not_lost():
    events = night()
    run = recovery.rebuilt(events, LIMITS, began=events[0].at - 7.0)
    assert run is not None
    assert ledger.spent(run.ledger, run.now).start_up - ledger.spent(folded(events).ledger, run.now).start_up == 7.0
    assert run.began == events[0].at - 7.0


def test_without_events_there_is_no_run():
    assert recovery.rebuilt([], LIMITS) is None


def test_an_attempt_that_was_ordered_and_never_started_is_ordered_again():
    ended = [*night(attempts=1), Exited(at=200.0, attempt=1, code=-9)]
    ordered = folded([*ended, Ticked(at=400.0)])
    assert (ordered.state, fold.next_wake(ordered, LIMITS)) == (lifecycle.BACKOFF, math.inf)

    run, actions = recovery.between_attempts(ordered)
    assert actions == []
    run, actions = fold.advance(run, Ticked(at=401.0), LIMITS)
    assert [action.attempt for action in actions if isinstance(action, Launch)] == [2]


def test_a_run_without_its_first_attempt_gets_it():
    run = folded([Ticked(at=1.0)])
    assert recovery.between_attempts(run) == (run, [Launch(attempt=1)])


def test_after_a_reboot_the_next_attempt_resumes_and_the_counts_go_on():
    before = folded(night())
    run, actions = recovery.on_a_new_clock(before, at=3.0)

    assert actions == [Launch(attempt=3, slices=before.current.slices, device=before.current.device, resume=True)]
    assert beats(run) == beats(before) == 40
    back = SupervisorRestarted(at=3.5, seconds=600.0, until=before.now, rebooted=True)
    times = ledger.spent(fold.advance(run, back, LIMITS)[0].ledger, 3.5)
    assert times.supervisor_absent == 600.0
    assert total(times) == pytest.approx(before.now - before.began + 600.0)
    assert (run.now, run.state) == (3.0, lifecycle.NEW)
    assert run.now - run.began == before.now - before.began, "the time spent before counts"


def test_the_new_clock_runs():
    run, actions = recovery.on_a_new_clock(folded(night()), at=3.0)
    run, _ = fold.advance(run, Launched(at=3.5, attempt=actions[0].attempt, pid=99), LIMITS)
    run, _ = fold.advance(run, Heartbeat(at=5.0, attempt=3, beats=1, beat_at=5.0, phase="step"), LIMITS)

    assert (run.current.number, run.state, run.now) == (3, lifecycle.RUNNING, 5.0)
    assert beats(run) == 41


def stalled_night() -> tuple[list[Event], int, int, Simulation]:
    """Return the events of a run that was ended for a stall, where the stall begins, and where the attempt ends."""
    world = Simulation(LIMITS, tick=1.0, batch=1.0, pid=11).train(60)
    silent = len(world.events)
    world.silent(60, "deadlock").train(30)
    ended = next(number for number, event in enumerate(world.events) if isinstance(event, Exited))
    return world.events, silent, ended, world


@pytest.mark.parametrize("has_end", [True, False], ids=["the stall is lost", "the end of the attempt is lost too"])
def test_lines_that_a_full_disk_cost_do_not_end_the_run_or_keep_it_in_an_attempt_that_is_over(has_end: bool) -> None:
    events, silent, ended, world = stalled_night()
    kept = events[:silent] + events[ended if has_end else ended + 1 :]
    if has_end:  # without the stall, the end by SIGTERM looks like that of the user
        assert folded([*events[:silent], events[ended]]).state in lifecycle.ENDED
    run = recovery.rebuilt(kept, LIMITS)

    assert run is not None
    assert (run.current.number, run.current.pid, run.state) == (2, world.run.current.pid, lifecycle.RUNNING)
    assert beats(run) > 60, "the batches of the first attempt count"
    assert total(ledger.spent(run.ledger, run.now)) == pytest.approx(run.now - events[0].at, abs=2.0)
    assert run.ledger.state == ledger.AT_WORK


def test_a_stalled_training_that_sigkill_ended_is_started_again_without_its_exit_code() -> None:
    world = Simulation(LIMITS, tick=1.0, batch=1.0, pid=11, ends_on_term=False, ends_on_kill=False).train(60)
    while world.run.state != lifecycle.KILLING:
        world.silent(1, "deadlock")
    world.tell(Exited, attempt=1, code=0, known=False)

    assert (world.run.current.number, world.alive) == (2, True)

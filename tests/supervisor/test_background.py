"""What goes on beside a run: when it ends by the clock on the wall, who guards it, output that is held."""

from __future__ import annotations

import datetime as dt
import os
from types import SimpleNamespace

import pytest

from stallguard.config.table import RunSettings
from stallguard.core import fold, lifecycle
from stallguard.core.events import OutputHeld
from stallguard.core.limits import Limits
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor import background
from stallguard.supervisor.background import NAME_EVERY, HeldOutput, SupervisorName
from tests.simulation.simulation import Simulation

at = dt.datetime.fromisoformat  # local, without an offset
EVENING = at("2026-11-20T23:00:00")

RUN = fold.begin(0.0)


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (at("2026-11-20T23:59:00"), ""),
        (at("2026-11-21T07:29:59"), ""),
        (at("2026-11-21T07:30:00"), "it is 07:30"),
        (at("2026-11-22T03:00:00"), "it is 07:30"),  # the machine slept over it
    ],
)
def test_a_night_ends_at_its_hour_of_the_next_day(now: dt.datetime, why: str) -> None:
    assert background.reason_to_end(RunSettings(stop_at="07:30"), EVENING, now, 60.0) == why


def test_an_hour_still_to_come_is_one_of_the_same_day() -> None:
    assert background.next_time_of_day("23:30", EVENING) == at("2026-11-20T23:30:00")


def test_a_run_that_begins_at_its_very_hour_has_a_whole_day() -> None:
    assert background.next_time_of_day("23:00", EVENING) == EVENING + dt.timedelta(days=1)


@pytest.mark.parametrize(("hours", "why"), [(7.9, ""), (8.0, "8 h have passed")])
@pytest.mark.parametrize("stepped", [-1, 0, 1])
def test_a_length_of_time_ends_it_too_whatever_the_clock_on_the_wall_does(hours: float, why: str, stepped: int) -> None:
    now = EVENING + dt.timedelta(hours=hours + stepped)
    assert background.reason_to_end(RunSettings(max_time=8 * 3600.0), EVENING, now, hours * 3600) == why


def test_without_an_appointment_a_run_goes_on() -> None:
    assert background.reason_to_end(RunSettings(), EVENING, EVENING + dt.timedelta(days=30), 30 * 86400.0) == ""


def test_a_run_that_was_taken_up_on_a_full_disk_says_later_who_guards_it(tmp_path):
    directory, now = RunDir(tmp_path), [0.0]
    dead = run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(schema=2, id=directory.id, command=[], argv=[], cwd="/", began="", supervisor=dead)
    run_files.keep_asked(directory, asked)
    refusing = tmp_path / f".run.json.{os.getpid()}"
    refusing.mkdir()  # the draft cannot be written
    context = SimpleNamespace(directory=directory, clock=SimpleNamespace(monotonic=lambda: now[0]))
    name = SupervisorName(context, tmp_path / "control")
    name.write()
    assert run_files.state(directory) == "lost"

    refusing.rmdir()
    now[0] += NAME_EVERY
    name.look(RUN)

    assert run_files.state(directory) == "running"
    assert run_files.asked(directory).control == str(tmp_path / "control")


def test_output_that_is_held_is_posted_every_two_seconds_and_output_that_is_read_is_not():
    clock, held, posted = [100.0], [0.0], []
    watch = HeldOutput(SimpleNamespace(blocked=lambda now: held[0]), posted.append, lambda: clock[0])

    for _ in range(50):  # 5 s of a reader that is slow, but reads
        clock[0], held[0] = clock[0] + 0.1, 0.5
        watch.look(None)
    assert posted == []

    held[0] = 0.0
    for _ in range(100):  # 10 s of one that takes nothing
        clock[0], held[0] = clock[0] + 0.1, held[0] + 0.1
        watch.look(None)
    assert 4 <= len(posted) <= 5
    assert all(isinstance(one, OutputHeld) for one in posted)
    assert posted[0].seconds == pytest.approx(1.0, abs=0.15)


def test_all_sensors_read_closely_while_a_stall_is_held_and_not_while_a_training_trains() -> None:
    """A verdict on a busy GPU holds only by readings that are not too old, until it is acted upon."""
    told: list[bool] = []
    context = SimpleNamespace(settings=SimpleNamespace(config=Limits()))
    threads = background.SensorThreads(context, SimpleNamespace(), SimpleNamespace(), {})  # type: ignore[arg-type]
    threads._samplers = SimpleNamespace(urgent=told.append)  # type: ignore[assignment]
    world = Simulation(Limits()).train(60)
    threads.tune(world.run)
    world.silent(60, "no census")
    assert world.run.state == lifecycle.HOLDING
    threads.tune(world.run)
    assert told == [False, True]

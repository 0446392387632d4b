"""When a run is to end, by the clock on the wall."""

from __future__ import annotations

import datetime as dt

import pytest

from stallguard.config.sections import RunSettings
from stallguard.supervisor import background

at = dt.datetime.fromisoformat  # local, without an offset
EVENING = at("2026-11-20T23:00:00")


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
def test_a_length_of_time_ends_it_too_whatever_the_clock_on_the_wall_does(
    hours: float, why: str, stepped: int
) -> None:
    now = EVENING + dt.timedelta(hours=hours + stepped)
    assert background.reason_to_end(RunSettings(max_time=8 * 3600.0), EVENING, now, hours * 3600) == why


def test_without_an_appointment_a_run_goes_on() -> None:
    assert (
        background.reason_to_end(RunSettings(), EVENING, EVENING + dt.timedelta(days=30), 30 * 86400.0) == ""
    )

"""When a machine takes jobs: midnight, summer time, and mains power."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest

from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.machines.offers import Power, closed, window

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = window("22:00", "07:00")


def at(text):
    return dt.datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def changes(now, hours):
    """Return when the machine opens or closes next, by a look at each minute."""
    before = closed(now, hours, zone=BERLIN)
    return next(
        time
        for time in range(int(now // 60) * 60 + 60, int(now) + 50 * 3600, 60)
        if closed(time, hours, zone=BERLIN) != before
    )


def said(now, hours):
    is_open = not closed(now, hours, zone=BERLIN)
    return is_open, dt.datetime.fromtimestamp(changes(now, hours), BERLIN).strftime("%d %H:%M %Z")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-06-10T21:59:59", (False, "10 22:00 CEST")),
        ("2026-06-10T22:00", (True, "11 07:00 CEST")),
        ("2026-06-11T00:00", (True, "11 07:00 CEST")),
        ("2026-06-11T06:59:59", (True, "11 07:00 CEST")),
        ("2026-06-11T07:00", (False, "11 22:00 CEST")),
    ],
)
def test_a_night_that_crosses_midnight(now, expected):
    assert said(at(now), NIGHT) == expected


def test_hours_of_one_day():
    day = window("9:00", "17:30")
    assert said(at("2026-06-10T08:00"), day) == (False, "10 09:00 CEST")
    assert said(at("2026-06-10T12:00"), day) == (True, "10 17:30 CEST")
    assert said(at("2026-06-10T17:30"), day) == (False, "11 09:00 CEST")


def test_the_night_in_which_summer_time_begins_is_an_hour_shorter():
    now = at("2026-03-28T22:00")
    assert (changes(now, NIGHT) - now) / 3600 == 8
    assert said(now, NIGHT) == (True, "29 07:00 CEST")


def test_the_night_in_which_summer_time_ends_is_an_hour_longer():
    now = at("2026-10-24T22:00")
    assert (changes(now, NIGHT) - now) / 3600 == 10


def test_a_time_that_does_not_exist_that_night_is_the_end_of_the_missing_hour():
    late = window("02:30", "07:00")
    assert said(at("2026-03-29T01:00"), late) == (False, "29 03:00 CEST")
    assert said(at("2026-03-29T03:00"), late) == (True, "29 07:00 CEST")
    within = window("02:10", "02:50")  # missing altogether: the next night's
    assert said(at("2026-03-29T01:00"), within) == (False, "30 02:10 CEST")


@pytest.mark.parametrize(("begin", "end"), [("22", "7"), ("24:00", "7:00"), ("7:00", "7:00"), ("", "")])
def test_times_that_are_none_are_refused(begin, end):
    with pytest.raises(StallguardError) as error:
        window(begin, end)
    assert error.value.code == USAGE


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (Power("ac", True), True),
        (Power("battery", True), False),
        (Power(None, False), True),  # a desktop whose supply the system does not describe
        (Power(None, True), False),
        (Power(None, None), False),
    ],
)
def test_on_mains_power_only(power, expected):
    noon = at("2026-06-10T12:00")
    assert (not closed(noon, None, power)) is expected
    assert closed(noon, NIGHT, power, BERLIN)
    why = closed(at("2026-06-10T23:00"), NIGHT, power, BERLIN)
    assert (why == "") is expected
    assert expected or "battery" in why or "not known" in why


def test_without_conditions_a_machine_is_open_for_good():
    assert closed(0.0, None) == ""


def test_the_reason_is_for_people():
    assert closed(at("2026-06-10T12:00"), NIGHT, zone=BERLIN) == "it takes jobs from 22:00 to 07:00"

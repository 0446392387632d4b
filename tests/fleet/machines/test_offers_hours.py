"""When a machine takes jobs: midnight, summer time, and mains power."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.machines.offers import Power, opening, window

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = window("22:00", "07:00")


def at(text, zone=BERLIN):
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def said(found, zone=BERLIN):
    return found.is_open, dt.datetime.fromtimestamp(found.changes, zone).strftime("%d %H:%M %Z")


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
    assert said(opening(at(now), NIGHT, zone=BERLIN)) == expected


def test_hours_of_one_day():
    day = window("9:00", "17:30")
    assert said(opening(at("2026-06-10T08:00"), day, zone=BERLIN)) == (False, "10 09:00 CEST")
    assert said(opening(at("2026-06-10T12:00"), day, zone=BERLIN)) == (True, "10 17:30 CEST")
    assert said(opening(at("2026-06-10T17:30"), day, zone=BERLIN)) == (False, "11 09:00 CEST")


def test_the_night_in_which_summer_time_begins_is_an_hour_shorter():
    now = at("2026-03-28T22:00")
    found = opening(now, NIGHT, zone=BERLIN)
    assert (found.changes - now) / 3600 == 8
    assert said(found) == (True, "29 07:00 CEST")


def test_the_night_in_which_summer_time_ends_is_an_hour_longer():
    now = at("2026-10-24T22:00")
    assert (opening(now, NIGHT, zone=BERLIN).changes - now) / 3600 == 10


def test_a_time_that_does_not_exist_that_night_is_the_end_of_the_missing_hour():
    late = window("02:30", "07:00")
    assert said(opening(at("2026-03-29T01:00"), late, zone=BERLIN)) == (False, "29 03:00 CEST")
    assert said(opening(at("2026-03-29T03:00"), late, zone=BERLIN)) == (True, "29 07:00 CEST")
    within = window("02:10", "02:50")  # missing altogether: the next night's
    assert said(opening(at("2026-03-29T01:00"), within, zone=BERLIN)) == (False, "30 02:10 CEST")


@given(
    st.integers(0, 1439), st.integers(0, 1439), st.floats(at("2026-01-01T00:00"), at("2027-01-01T00:00")),
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "UTC"]),
)  # fmt: skip
def test_nothing_changes_before_the_time_that_is_said_and_it_changes_then(begin, end, now, zone):
    if begin == end:
        return
    hours = window(*(f"{minute // 60}:{minute % 60:02}" for minute in (begin, end)))
    found = opening(now, hours, zone=ZoneInfo(zone))
    assert now < found.changes
    for later in range(int(now // 60) * 60 + 60, int(found.changes), 1260):
        assert opening(later, hours, zone=ZoneInfo(zone)).is_open == found.is_open
    assert opening(found.changes, hours, zone=ZoneInfo(zone)).is_open != found.is_open
    assert opening(found.changes - 1, hours, zone=ZoneInfo(zone)).is_open == found.is_open


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
    assert opening(noon, None, power).is_open is expected
    assert not opening(noon, NIGHT, power, BERLIN).is_open
    found = opening(at("2026-06-10T23:00"), NIGHT, power, BERLIN)
    assert found.is_open is expected
    assert expected or "battery" in found.why or "not known" in found.why


def test_without_conditions_a_machine_is_open_for_good():
    assert opening(0.0, None) == (True, "", None)


def test_the_reason_is_for_people():
    assert opening(at("2026-06-10T12:00"), NIGHT, zone=BERLIN).why == "it takes jobs from 22:00 to 07:00"

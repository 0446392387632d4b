"""What people write for durations, sizes, shares and times of day."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stallguard import units
from stallguard.core.limits import NEVER


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("8h", 28800), ("1h30m", 5400), ("2 days", 172800), ("250ms", 0.25), ("90", 90),
     (" 1.5 H ", 5400), ("0", 0), ("1d 2h 3m 4s", 93784), ("never", NEVER)],
)  # fmt: skip
def test_a_duration_is_read_as_people_write_it(text: str, seconds: float) -> None:
    assert units.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "soon", "-5s", "5 5", "5x", "s", "1h 30", "nan", "inf", "1e5s", "٣s ٣", "9" * 400]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.duration(text)


@given(st.integers(min_value=0, max_value=10**8))
@example(86400)
def test_whole_seconds_survive_being_shown(seconds: int) -> None:
    assert units.duration(units.show_duration(seconds)) == seconds


@given(st.floats(min_value=0, max_value=1e6))
def test_any_duration_survives_being_shown_to_the_microsecond(seconds: float) -> None:
    assert units.duration(units.show_duration(seconds)) == pytest.approx(seconds, abs=1e-6)


def test_out_of_reach_is_shown_as_never() -> None:
    assert units.show_duration(NEVER) == "never"
    assert units.show_duration(5400) == "1h30m"


@pytest.mark.parametrize(
    ("text", "count"),
    [("20MB", 20_000_000), ("20 MiB", 20 * 2**20), ("1.5GB", 1_500_000_000), ("512k", 512_000), ("0", 0), ("7B", 7)],
)
def test_a_size_is_read_as_people_write_it(text: str, count: int) -> None:
    assert units.size(text) == count


@pytest.mark.parametrize("text", ["", "big", "-1", "1 XB", "1 2", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        units.size(text)


@given(st.integers(min_value=0, max_value=10**15))
@example(101_296_268_916_900)  # 13 digits before the unit
def test_a_size_survives_being_shown(count: int) -> None:
    assert units.size(units.show_size(count)) == count


@given(st.text(max_size=20))
def test_no_text_brings_anything_but_a_value_error(text: str) -> None:
    for read in (units.duration, units.size, units.share, units.clock):
        with contextlib.suppress(ValueError):
            read(text)


def test_a_share_is_a_percentage_or_a_fraction() -> None:
    assert units.share("5%") == units.share("0.05") == 0.05
    with pytest.raises(ValueError):
        units.share("101%")


def test_a_time_of_day_has_an_hour_and_a_minute() -> None:
    assert units.clock("7:30") == units.clock("07:30") == (7, 30)
    for text in ("24:00", "7", "7:5", "07:30:00", "noon"):
        with pytest.raises(ValueError):
            units.clock(text)

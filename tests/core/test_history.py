"""The memory of an attempt keeps what matters and never grows beyond its bounds."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.core import history
from stallguard.core.events import (
    Event,
    Exited,
    Heartbeat,
    Launched,
    Matched,
    ProbeNote,
    Sampled,
    SensorBlocked,
    Ticked,
)
from stallguard.core.history import History, is_saving, remember
from stallguard.core.readings import Device, Files, Memory, Process
from tests import examples
from tests.core.scenarios import events


def after(*happened: Event, start: History | None = None) -> History:
    story = start or History()
    for event in happened:
        story = remember(story, event)
    return story


def process(at: float, **facts: object) -> Sampled:
    return Sampled(at=at, reading=Process(**facts))


def test_the_newest_reading_is_always_there_and_older_ones_thin_out() -> None:
    story = after(*(process(0.25 * n, cpu=n) for n in range(401)))
    times = [seen.at for seen in story.process]
    assert times[-1] == 100.0
    assert len(times) < 60
    assert all(later - earlier >= history.SPACING for earlier, later in pairwise(times[:-1]))


def test_five_minutes_of_readings_are_kept() -> None:
    story = after(*(process(float(n), cpu=n) for n in range(4000)))
    assert len(story.process) == history.READINGS
    assert story.process[-1].at - story.process[0].at >= 290


def test_no_sign_of_gpu_work_is_lost_by_thinning() -> None:
    moves = [Sampled(at=1.5 * n, reading=Device(moved=n == 2, used_by_run=True)) for n in range(6)]
    story = after(*moves)
    assert [seen.reading.moved for seen in story.device] == [False, False, True, False, False, False]
    assert story.used_gpu


def test_the_growth_of_a_week_fits_into_64_points() -> None:
    start = after(Heartbeat(at=0, attempt=1, beats=1))
    story = after(*(process(60.0 * n, footprint=n) for n in range(10_000)), start=start)
    points = story.growth.points
    assert len(points) <= history.GROWTH_POINTS
    assert points[0][:2] == (0.0, 0)
    assert all(low <= high for _, low, high, _ in points)
    assert points[-1][2] == 9_999
    assert points[-1][0] > 0.95 * 600_000


def test_memory_before_the_first_batch_is_no_growth() -> None:
    assert after(*(process(10.0 * n, footprint=n) for n in range(99))).growth.points == ()


def test_a_line_that_repeats_is_counted_not_kept_again() -> None:
    lines = [Matched(at=float(n), signature="iogpu_hang", family="GPU_FAULT", line=f"line {n}") for n in range(9)]
    (match,) = after(*lines).matched
    assert (match.count, match.first, match.last, match.line) == (9, 0.0, 8.0, "line 8")


def test_a_new_attempt_forgets_the_old_one_but_not_the_machine() -> None:
    old = after(
        Launched(at=1, attempt=1, pid=7),
        Heartbeat(at=2, attempt=1, beats=5),
        process(3, cpu=1.0, workers=1),
        Sampled(at=3, reading=Memory(total=16)),
        Matched(at=4, signature="x", family="FATAL", line="x"),
        Exited(at=5, attempt=1, code=-9),
    )
    new = remember(old, Launched(at=9, attempt=2, pid=8, slices=2, device="cpu"))
    assert (new.attempt, new.began, new.slices, new.on_cpu) == (2, 9, 2, True)
    assert new.memory == old.memory
    assert new.heartbeat is new.exited is new.workers_died_at is None
    assert new.process == new.matched == ()


def test_a_save_is_under_way_only_while_its_news_is_fresh() -> None:
    story = after(Sampled(at=100, reading=Files(writing=True)))
    assert is_saving(story, 105)
    assert not is_saving(story, 111)
    assert not is_saving(remember(story, Sampled(at=106, reading=Files(writing=False))), 107)
    assert not is_saving(History(), 0)


def test_the_rows_of_a_batch_are_what_the_probe_said_last_and_unknown_again_if_it_does_not_know() -> None:
    notes = [ProbeNote(at=0, attempt=1, kind="k", text="", facts={"rows": rows}) for rows in ("64", "32")]
    position = {"fit": "1", "epoch": "2", "batch": "0"}
    resumed = ProbeNote(at=0, attempt=1, kind="resume", text="", facts=position)
    assert after(*notes, resumed).rows == 32
    for unknown in ("0", "many"):  # as of a fit of a Sequence, after one of arrays
        note = ProbeNote(at=0, attempt=1, kind="batch", text="", facts={"rows": unknown})
        assert after(*notes, note).rows is None
    assert History().rows is None


def test_a_pause_that_ended_is_remembered() -> None:
    story = after(*(Heartbeat(at=n, attempt=1, longest=seconds) for n, seconds in enumerate((0.2, 75.0, 0.2))))
    assert [(pause.at, pause.seconds) for pause in story.pauses] == [(1, 75.0)]


def test_a_sensor_that_blocks_again_and_again_is_one_entry() -> None:
    story = after(*(SensorBlocked(at=n, sensor="device", seconds=n) for n in range(20)))
    assert [blocked.at for blocked in story.blocked] == [19]


def test_what_is_no_news_changes_nothing() -> None:
    story = after(Heartbeat(at=0, attempt=1))
    assert remember(story, Ticked(at=1)) is story


@settings(max_examples=examples.of(100, fast=16), deadline=None)
@given(st.lists(events.ANY, min_size=1, max_size=30), st.integers(1, 40))
def test_the_size_is_bounded_whatever_happens(happened: list[Event], rounds: int) -> None:
    story = History()
    for number in range(rounds):
        for event in happened:
            story = remember(story, replace(event, at=event.at + number))
    assert len(story.matched) <= history.SIGNATURES
    assert len(story.noted) <= history.NOTES
    assert len(story.blocked) <= history.BLOCKED
    assert len(story.pauses) <= history.PAUSES
    assert len(story.heartbeats) <= history.HEARD
    assert all(len(getattr(story, name)) <= history.READINGS for name in ("process", "device", "memory", "files"))


def test_a_full_history_takes_less_than_a_megabyte() -> None:
    story = after(Heartbeat(at=0, attempt=1, beats=1))
    for n in range(2000):
        story = after(
            Heartbeat(at=5.0 *n, attempt=1, beats=n, longest=11),
            process(5.0 *n, cpu=n, footprint=n, census={"futex": 60}),
            *(Sampled(at=5.0 *n, reading=reading) for reading in (Device(name="x"), Memory(total=n), Files(age=n))),
            Matched(at=5.0 *n, signature=str(n), family="FATAL", line="x" *10_000),
            ProbeNote(at=5.0 *n, attempt=1, kind="k", text="t"), start=story,
        )  # fmt: skip
    assert len(msgspec.json.encode(story)) < 250_000

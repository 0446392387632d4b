"""Output that is read for what it means: from the first byte on, and what was not read is said."""

from __future__ import annotations

from stallguard.core.events import Event, Matched, ProbeNote
from stallguard.sensors.log_matcher import Matcher
from stallguard.supervisor.output.matching import FIRST, Matching

ERROR = b'Traceback (most recent call last):\n  File "t.py", line 1\n'


def matching() -> tuple[Matching, list[Event]]:
    posted: list[Event] = []
    return Matching(posted.append, lambda: 1.0, lambda: 3), posted


def test_what_came_before_the_matcher_is_read_first() -> None:
    reader, posted = matching()
    reader.feed(ERROR)
    reader.begin(Matcher())
    reader.feed(b"ValueError: x\n")

    assert [event.line for event in posted if isinstance(event, Matched)] == ["ValueError: x"]


def test_what_was_skipped_is_said_at_once_and_in_sum_at_the_end_of_each_attempt() -> None:
    reader, posted = matching()
    reader.begin(Matcher())
    for _ in range(3):
        reader.feed(b"x\n", 400_000)
    reader.finish()
    reader.finish()

    notes = [(event.attempt, event.text) for event in posted if isinstance(event, ProbeNote)]
    assert [attempt for attempt, _ in notes] == [3, 3]
    assert "faster than" in notes[0][1]
    assert notes[1][1].startswith("1.2 MB of the output")


def test_a_traceback_is_not_continued_behind_a_gap() -> None:
    reader, posted = matching()
    reader.begin(Matcher())
    reader.feed(ERROR)
    reader.feed(b"12/80 loss: 0.5\n", 5_000_000)

    assert [event for event in posted if isinstance(event, Matched)] == []


def test_what_has_no_room_before_the_matcher_is_there_counts_as_skipped() -> None:
    reader, posted = matching()
    reader.feed(b"x" * FIRST)
    reader.feed(ERROR)
    reader.begin(Matcher())
    reader.feed(b"ValueError: x\n")
    reader.finish()

    assert not any(isinstance(event, Matched) for event in posted)
    assert [event.text for event in posted if isinstance(event, ProbeNote)][-1].startswith("0.0 MB")

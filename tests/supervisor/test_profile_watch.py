"""What is posted of the stacks that a probe samples: when, and what an error in reading them does."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from stallguard.core.events import Event, Heartbeat, ProbeNote, Profiled
from stallguard.probe import wire
from stallguard.storage import stack_samples
from stallguard.storage.stack_samples import StackSamples, StackTime
from stallguard.supervisor.profile_watch import FIRST, LONGEST, ProfileWatch
from stallguard.supervisor.program_record import Track

PID, BEGAN = 2**30 + 7, 5  # the number of no process


@pytest.fixture
def posted() -> list[Event]:
    return []


@pytest.fixture
def watch(tmp_path: Path, posted: list[Event]) -> ProfileWatch:
    return ProfileWatch(tmp_path, posted.append)


@pytest.fixture
def track(tmp_path: Path) -> Track:
    """Return a program that trains."""
    track = Track({"pid": PID, "began_ns": BEGAN}, 1, tmp_path, 0.0)
    track.last = Heartbeat(at=0.0, attempt=1, pid=PID, trains=True)
    return track


def sampled(probe: Path, samples: int, began: int = BEGAN) -> None:
    """Write what the probe of the program has sampled so far."""
    stacks = [StackTime("training", "step", (), samples * 500)]
    text = msgspec.json.encode(StackSamples(began, samples, samples * 500, [], stacks))
    stack_samples.path(probe, PID).write_bytes(struct.pack("<2q", 2, len(text)) + text)


def test_the_first_profile_comes_soon_and_the_next_ones_ever_more_rarely(
    watch: ProfileWatch, track: Track, tmp_path: Path, posted: list[Event]
) -> None:
    for second in range(7200):
        sampled(tmp_path, 2 * second + 1)
        watch.look([track], 1, float(second))

    times = [event.at for event in posted if isinstance(event, Profiled)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST


def test_a_program_that_ends_has_a_last_profile_and_nothing_is_posted_twice(
    watch: ProfileWatch, track: Track, tmp_path: Path, posted: list[Event]
) -> None:
    sampled(tmp_path, 100)
    for second in (0.0, 20.0, 60.0):
        watch.look([track], 1, second)
    watch.ended(track, 1, 70.0)
    assert [event.at for event in posted] == [20.0]

    sampled(tmp_path, 140)
    watch.ended(track, 1, 71.0)
    assert [event.at for event in posted] == [20.0, 71.0]


def test_samples_of_an_earlier_program_with_the_same_number_are_not_its_own(
    watch: ProfileWatch, track: Track, tmp_path: Path, posted: list[Event]
) -> None:
    sampled(tmp_path, 100, began=BEGAN - 1)
    watch.ended(track, 1, 70.0)
    assert posted == []


def test_an_error_of_ours_is_reported_once_and_later_records_are_still_taken(
    watch: ProfileWatch, track: Track, posted: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Path) -> None:
        raise ZeroDivisionError(f"of {file.name}")

    monkeypatch.setattr(stack_samples, "read", fails)
    for second in (0.0, 20.0, 60.0):
        watch.look([track], 1, second)
    watch.ended(track, 1, 70.0)

    assert [(event.kind, event.text) for event in posted if isinstance(event, ProbeNote)] == [
        ("trouble", f"where the time goes cannot be read (ZeroDivisionError: of {wire.PROFILE % PID})")
    ]
    assert len(posted) == 1

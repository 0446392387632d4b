"""Whether an attempt is watched from outside only is said with its reason, and where a training's time goes."""

from __future__ import annotations

import os
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from stallguard.core.events import Event, ProbeNote, Profiled
from stallguard.probe import wire
from stallguard.storage import stack_samples
from stallguard.storage.stack_samples import StackSamples, StackTime
from stallguard.supervisor.attempt_watch import (
    FIRST,
    LONGEST,
    NO_LIBRARY,
    NO_PROBE,
    OUTSIDE_AFTER,
    OutsideWatch,
    ProfileWatch,
)

PID, BEGAN = PROGRAM = 2**30 + 7, 5  # the number of no process


@pytest.fixture
def posted() -> list[Event]:
    return []


@pytest.fixture
def watch(tmp_path: Path, posted: list[Event]) -> ProfileWatch:
    return ProfileWatch(tmp_path, posted.append)


OURS = "of this process"  # its pid is no part of a test's name: the workers of a suite must collect the same names


@pytest.mark.parametrize(
    ("mark", "seconds", "barred", "said"),
    [
        (OURS, OUTSIDE_AFTER, "", [NO_LIBRARY]),
        (OURS, OUTSIDE_AFTER - 1, "", []),
        ("nothing", OUTSIDE_AFTER, "", [NO_PROBE]),
        ("nothing", OUTSIDE_AFTER, "it is a shell", [f"{NO_PROBE}: it is a shell"]),
        # A worker of a pool imports a library, and sends nothing until it trains.
        (f"{PID}.loading", OUTSIDE_AFTER, "", []),
    ],
)
def test_only_what_is_known_of_an_attempt_without_a_report_is_said(
    mark: str, seconds: float, barred: str, said: list[str], tmp_path: Path, posted: list[Event]
) -> None:
    (tmp_path / (wire.WAITING % os.getpid() if mark == OURS else mark)).touch()
    watch = OutsideWatch(tmp_path, posted.append)
    watch.barred = barred
    watch.begin(1, 100.0)
    for later in (0.0, 10.0):  # what is known already is no news
        watch.look(100.0 + seconds + later if said else 100.0 + seconds)

    assert [event.text for event in posted if isinstance(event, ProbeNote)] == said


def test_a_mark_of_a_process_that_is_gone_is_no_probe_that_waits(tmp_path: Path, posted: list[Event]) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    (tmp_path / (wire.WAITING % process.pid)).touch()
    watch = OutsideWatch(tmp_path, posted.append)
    watch.begin(1, 100.0)
    watch.look(161.0)

    assert [event.text for event in posted if isinstance(event, ProbeNote)] == [NO_PROBE]


def sampled(probe: Path, samples: int, began: int = BEGAN) -> None:
    """Write what the probe of the program has sampled so far."""
    stacks = [StackTime("training", "step", (), samples * 500)]
    text = msgspec.json.encode(StackSamples(began, samples, samples * 500, [], stacks))
    stack_samples.path(probe, PID).write_bytes(struct.pack("<2q", 2, len(text)) + text)


@pytest.mark.costly
def test_the_first_profile_comes_soon_and_the_next_ones_ever_more_rarely(
    watch: ProfileWatch, tmp_path: Path, posted: list[Event]
) -> None:
    for second in range(7200):
        sampled(tmp_path, 2 * second + 1)
        watch.look([PROGRAM], 1, float(second))

    times = [event.at for event in posted if isinstance(event, Profiled)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert times[0] == FIRST
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST


def test_a_program_that_ends_has_a_last_profile_and_nothing_is_posted_twice(
    watch: ProfileWatch, tmp_path: Path, posted: list[Event]
) -> None:
    sampled(tmp_path, 100)
    for second in (0.0, 20.0, 60.0):
        watch.look([PROGRAM], 1, second)
    watch.ended(PROGRAM, 1, 70.0, trained=True)
    assert [event.at for event in posted] == [20.0]

    sampled(tmp_path, 140)
    watch.ended(PROGRAM, 1, 71.0, trained=True)
    assert [event.at for event in posted] == [20.0, 71.0]


def test_samples_of_an_earlier_program_with_the_same_number_are_not_its_own(
    watch: ProfileWatch, tmp_path: Path, posted: list[Event]
) -> None:
    sampled(tmp_path, 100, began=BEGAN - 1)
    watch.ended(PROGRAM, 1, 70.0, trained=True)
    assert posted == []


def test_an_error_of_ours_is_reported_once_and_later_records_are_still_taken(
    watch: ProfileWatch, posted: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(file: Path) -> None:
        raise ZeroDivisionError(f"of {file.name}")

    monkeypatch.setattr(stack_samples, "read", fails)
    for second in (0.0, 20.0, 60.0):
        watch.look([PROGRAM], 1, second)
    watch.ended(PROGRAM, 1, 70.0, trained=True)

    assert [(event.kind, event.text) for event in posted if isinstance(event, ProbeNote)] == [
        ("trouble", f"where the time goes cannot be read (ZeroDivisionError: of {wire.PROFILE % PID})")
    ]
    assert len(posted) == 1

"""Recordings of trainings on a GPU, sick and healthy, decided again: as they were, at other step times, knowing less.

A new recording is a file in tests/recordings/devices, as scripts/benches/gpu_zoo/recordings.py writes it, and a line in
SICK or HEALTHY.  Those of `h200-` are of `scripts/bench gpu` on an NVIDIA H200 that up to 13 other trainings of the
bench shared.  The others are made by hand of the journal h200_torch_kernel_without_end: its training is real, and what
follows is what such a card would have read.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from stallguard.core.detection import detector
from stallguard.core.events import AnyEvent, Event, Heartbeat, Sampled, Ticked
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process
from tests import examples

LIMITS = DetectorLimits()
RECORDED = Path(__file__).parents[1] / "recordings" / "devices"
# Name: the evidence of the verdict.  All are noticed within NOTICED seconds, judged within JUDGED, ended within ENDED.
SICK = {
    "torch-kernel-step-spin": "busy device",
    "torch-kernel-step-block": "busy device",
    "torch-kernel-step-others": "busy device",  # another program comes and goes
    "torch-kernel-first-spin": "busy device",
    "torch-host-step-spin": "idle device",
    "lightning-host-step-spin": "idle device",  # no value is read: the launch of a later kernel waits
    "h200-torch-kernel-step-spin": "busy device",
    "h200-torch-kernel-step-yield": "busy device",
    "h200-keras-jax-kernel-step-block": "busy device",
    "h200-jax-kernel-validation-spin": "busy device",
    "h200-lightning-kernel-save-spin": "busy device",  # the copy holds the interpreter's lock: no record comes
    "h200-keras-torch-copy-callback-spin": "busy device",
    "h200-torch-host-step-spin": "busy device",  # the kernels of the others keep the card busy
    "h200-trainer-kernel-callback-spin": "busy device",
}
# Its one healthy save then takes so long that a silence of 50 s is no news yet.
LATER = {("h200-lightning-kernel-save-spin", 10.0)}
NOTICED, JUDGED, ENDED = 30.0, 60.0, 120.0
HEALTHY = (
    "torch-evaluation-callback", "torch-evaluation-callback-memory", "torch-long-step", "torch-shared-step",
    "torch-svd-callback", "torch-unreadable-step", "torch-long-first", "jax-compile-step",
    # These computed in one call of numpy, while other programs kept the card busy: an alarm was raised.
    "h200-keras-torch-svd-callback-spin", "h200-keras-jax-svd-callback-spin",
    "h200-torch-evaluation-callback-spin", "h200-jax-evaluation-callback-spin", "h200-trainer-evaluation-callback-spin",
    "h200-keras-jax-compile-step-spin", "h200-lightning-loader-first-spin", "h200-torch-long-step-spin",
)  # fmt: skip
SCALES = (0.3, 1.0, 3.0, 10.0)  # of the time of a step
TICK = 0.7  # seconds; the watched clock adds a second at most for each event
SAME = 2.1  # seconds by which a decision can move with one reading
CLOCKS = ("at", "progress_at", "phase_at", "beat_at", "sent_at", "wait_at", "poll_at", "expect_until")
LASTS = ("longest", "step_s", "input_s")
COUNTERS = ("cpu", "system", "io", "disk", "minor_faults", "major_faults", "switches", "run_queue")
# What the detector reads.  Not the wait sites: without them the frame alone decides, which can be sooner
# (core/detection/activity.py).
READ: dict[type, str] = {
    Device: "utilisation moved power used_by_run memory_utilisation power_limit others compute",
    Process: "cpu members threads io disk minor_faults major_faults run_queue remote workers",
    Heartbeat: "wait wakers",
}
LESS = [(kind, name) for kind, names in READ.items() for name in names.split()]


class Decided(NamedTuple):
    """Seconds from the last progress before the longest silence; infinity: never.  `evidence`: of the verdict."""

    noticed: float
    judged: float
    ended: float
    evidence: str


@cache
def recording(name: str) -> tuple[Event, ...]:
    [path] = RECORDED.glob(f"{name}.jsonl*")
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return tuple(msgspec.json.decode(line, type=AnyEvent) for line in data.splitlines())


def silence(events: Iterable[Event]) -> float:
    """Return when the longest silence began."""
    beats = [event for event in events if isinstance(event, Heartbeat)]
    ends = sorted({beat.progress_at for beat in beats if beat.trains or beat.phase != "importing"})
    gaps = [(later - at, at) for at, later in itertools.pairwise([*ends, beats[-1].at])]
    return max(gaps)[1]


def decided(events: Sequence[Event]) -> Decided:
    """Return what the detector of today says."""
    began, state = silence(events), detector.start()
    noticed = judged = ended = float("inf")
    evidence = ""
    for event in events:
        state = detector.observe(state, event, LIMITS)
        step, gap = state.judgement.step, event.at - began
        if step in ("suspect", "stalled"):
            noticed = min(noticed, gap)
        if step == "stalled" and judged == float("inf"):
            judged, evidence = gap, state.judgement.evidence
        due = detector.act_at(state, LIMITS)
        if due is not None and due <= event.at:
            ended = min(ended, gap)
    return Decided(noticed, judged, ended, evidence)


def scaled(events: Sequence[Event], scale: float) -> Iterator[Event]:
    """Yield the events with everything before the longest silence so many times as slow."""
    pivot = silence(events)
    counts: dict[str, float] = {}
    for event in events:
        if isinstance(event, Sampled) and isinstance(event.reading, Process) and event.at <= pivot:
            counts = {name: value for name in COUNTERS if (value := getattr(event.reading, name)) is not None}
    last = 0.0
    for event in events:
        new = _later(event, pivot, scale, counts)
        while last and new.at - last > TICK:
            last += TICK
            yield Ticked(at=last)
        last = new.at
        yield new


def _later(event: Event, pivot: float, scale: float, counts: dict[str, float]) -> Event:
    def at(clock: float) -> float:
        return pivot + (clock - pivot) * scale + 1e4 if 0.0 < clock < pivot else clock + 1e4 if clock else clock

    moved = {name: at(value) for name in CLOCKS if isinstance(value := getattr(event, name, None), float)}
    if isinstance(event, Heartbeat):
        slower = event.progress_at <= pivot
        moved |= {name: getattr(event, name) * (scale if slower else 1.0) for name in LASTS}
    reading = getattr(event, "reading", None)
    if isinstance(reading, Process) and event.at < pivot:
        far = {name: (value, last) for name, last in counts.items() if (value := getattr(reading, name)) is not None}
        rescaled = {name: type(value)(last + (value - last) * scale) for name, (value, last) in far.items()}
        lowest = {name: max(type(value)(0), value) for name, value in rescaled.items()}
        return replace(event, reading=replace(reading, **lowest), **moved)
    return replace(event, **moved)


def without(events: Iterable[Event], kind: type, name: str) -> list[Event]:
    """Return the events without what one field says."""

    def unknown(one: object) -> object:
        fields = {field.name: field for field in msgspec.structs.fields(type(one))}  # type: ignore[arg-type]
        return replace(one, **{name: fields[name].default})  # type: ignore[type-var]

    found: list[Event] = []
    for event in events:
        if isinstance(event, Sampled) and isinstance(event.reading, kind):
            found.append(replace(event, reading=unknown(event.reading)))
        else:
            found.append(unknown(event) if isinstance(event, kind) else event)  # type: ignore[arg-type]
    return found


def test_each_recording_has_its_line_and_each_line_its_recording() -> None:
    names = {path.name.split(".jsonl")[0] for path in RECORDED.glob("*.jsonl*")}

    assert names == {*SICK, *HEALTHY}


@pytest.mark.costly
@pytest.mark.parametrize(("name", "scale"), [one for one in itertools.product(SICK, SCALES) if one not in LATER])
def test_a_sick_training_is_noticed_judged_and_ended_in_time_at_any_pace(name: str, scale: float) -> None:
    found = decided(list(scaled(recording(name), scale)))

    assert found.evidence == SICK[name]
    assert found.noticed <= NOTICED
    assert found.judged <= JUDGED
    assert found.ended <= ENDED


@pytest.mark.costly
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_training_is_left_alone_at_any_pace(name: str, scale: float) -> None:
    assert decided(list(scaled(recording(name), scale))).judged == float("inf")


@pytest.mark.costly
@pytest.mark.parametrize("name", SICK)
def test_who_knows_less_never_decides_sooner(name: str) -> None:
    whole = decided(recording(name))
    for kind, field in LESS[:: examples.of(1, fast=6)]:
        less = decided(without(recording(name), kind, field))
        for known, unknown in zip(whole[:3], less[:3], strict=True):
            assert unknown >= known - SAME, (kind.__name__, field)


@pytest.mark.costly
@pytest.mark.parametrize("name", HEALTHY)
def test_who_knows_less_raises_no_alarm(name: str) -> None:
    for kind, field in LESS[:: examples.of(1, fast=6)]:
        assert decided(without(recording(name), kind, field)).judged == float("inf"), (kind.__name__, field)

"""Recorded trainings (traces) as the events that a live run would have given the core.

A trace is a JSON-lines file: a first object with "meta", then events `[t, code, arg]` of the training loop and
samples (objects) of its process at 4 Hz.  The loop's events go through the same rules as live ones: an
absolute record, merged to about one a second during progress.  What a trace does not contain is assumed: the
probe sends a pulse once a second unless the process is stopped, and its hooks are those of Keras' callbacks.
This module must not judge.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stallguard.core.events import Event, Exited, Heartbeat, ProbeConnected, Sampled
from stallguard.core.readings import Memory, Process

EVERY, SOON, SILENT = 1.0, 0.25, 1.0  # seconds; as the supervisor merges live records
MEMORY_EVERY = 5.0  # seconds

_STATES = {
    "R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "stopped", "Z": "zombie",
    "X": "gone", "I": "sleeping",
}  # fmt: skip
_SITES = {
    "fi": "futex", "ft": "timed", "slp": "sleep", "poll": "poll", "sock": "sock", "read": "read",
    "write": "write", "sync": "sync", "wait": "wait", "run": "run", "D": "disk", "oth": "other",
}  # fmt: skip
# code: (phase after it, counters that it moves)
_CODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "proc_begin": ("importing", ()),
    "import_end": ("importing", ()),
    "fit_begin": ("epoch start", ("fits",)),
    "epoch_begin": ("epoch start", ("epoch",)),
    "b": ("step", ()),
    "e": ("between", ("beats", "fit_beats", "batch")),
    "epoch_end": ("epoch end", ()),
    "test_begin": ("validation", ()),
    "te": ("validation", ("checks",)),
    "test_end": ("between", ()),
    "pred_begin": ("prediction", ()),
    "pe": ("prediction", ("checks",)),
    "pred_end": ("between", ()),
    "save_begin": ("checkpoint", ()),
    "save_end": ("between", ("saves",)),
    "fit_end": ("idle", ()),
    "proc_end": ("finishing", ()),
}

Mark = tuple[float, str, str]  # seconds, code, argument


class Trace(msgspec.Struct, frozen=True):
    """A recording: `marks` of the loop and `samples` of the process, both in order of time (seconds)."""

    meta: dict[str, Any]
    marks: list[Mark]
    samples: list[dict[str, Any]]


def is_trace(path: Path) -> bool:
    """Return whether a file is a trace, by its first line."""
    with path.open("rb") as file:
        first = _value(file.readline(4096).decode(errors="replace"))
    return isinstance(first, dict) and "meta" in first


def read(path: Path) -> Trace:
    """Return the trace in `path`; a line that is cut is skipped."""
    lines = path.read_text(encoding="utf-8").splitlines()
    meta, *values = [value for line in lines if (value := _value(line)) is not None]
    marks = [(float(v[0]), str(v[1]), str(v[2])) for v in values if isinstance(v, list)]
    samples = [v for v in values if isinstance(v, dict) and "t" in v]
    return Trace(meta, sorted(marks, key=_at), sorted(samples, key=lambda sample: float(sample["t"])))


def _at(mark: Mark) -> float:
    return mark[0]  # by time only: marks of the same instant keep their order


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # the recorder was killed inside this line


def events(trace: Trace) -> Iterator[Event]:
    """Yield the events of a live run of this training, in order of time, on the trace's own clock."""
    yield ProbeConnected(at=0.0, attempt=1, pid=0, armed=True)
    records, pressure = Records(), MemoryPressure()
    marks = ((at, 0, index) for index, (at, _, _) in enumerate(trace.marks))
    samples = ((float(sample["t"]), 1, index) for index, sample in enumerate(trace.samples))
    for at, is_sample, index in heapq.merge(marks, samples):  # of the same instant the mark comes first
        if is_sample:
            sample = trace.samples[index]
            yield from records.tick(at, stopped=sample.get("st") in ("T", "t"))
            yield Sampled(at=at, reading=process(sample))
            yield from pressure.tick(at, sample)
        else:
            yield from records.mark(at, trace.marks[index][1])
    yield from records.end(_end(trace))
    if trace.meta.get("rc") == 0:
        yield Exited(at=_end(trace), attempt=1, code=0)


def _end(trace: Trace) -> float:
    last = max([mark[0] for mark in trace.marks[-1:]] + [sample["t"] for sample in trace.samples[-1:]], default=0.0)
    return max(last, float(trace.meta.get("tend", 0.0)) - float(trace.meta.get("t0", 0.0)))


class Records:
    """Combines the probe's record and the supervisor's merging: takes marks, yields merged records."""

    def __init__(self) -> None:
        self._names: dict[str, Any] = {"attempt": 1, "phase": "importing", "source": "callbacks"}
        self._counts: dict[str, Any] = dict.fromkeys(
            ("beats", "fit_beats", "batch", "checks", "saves", "fits", "changes"), 0
        )
        self._counts["epoch"] = -1
        self._times: dict[str, Any] = {"progress_at": 0.0, "phase_at": 0.0, "beat_at": 0.0, "step_s": 0.0}
        self._longest, self._longest_phase = 0.0, "importing"
        self._last: Heartbeat | None = None
        self._pending = False

    def mark(self, at: float, code: str) -> Iterator[Heartbeat]:
        """Take an event of the loop; yield a record if it has something new."""
        if code not in _CODES:
            return
        pause, phase = at - self._times["progress_at"], self._names["phase"]
        if pause > self._longest:
            self._longest, self._longest_phase = pause, phase
        if phase == "step":
            self._times["step_s"] += pause
        if code == "fit_begin":
            self._counts |= {"fit_beats": 0, "epoch": -1, "batch": 0}
        elif code == "epoch_begin":
            self._counts["batch"] = 0
        after, moved = _CODES[code]
        for name in ("changes", *moved):
            self._counts[name] += 1
        if "beats" in moved:
            self._times["beat_at"] = at
        if after != phase:
            self._times["phase_at"] = at
        self._names["phase"] = after
        self._times["progress_at"] = at
        self._pending = True
        if self._is_news(at):
            yield self._send(at)

    def tick(self, at: float, *, stopped: bool) -> Iterator[Heartbeat]:
        """Yield a pending record, or the pulse of a second without progress."""
        last = self._last
        if last is None or stopped:
            return
        if at - last.at >= EVERY or (self._pending and self._is_news(at)):
            yield self._send(at)

    def end(self, at: float) -> Iterator[Heartbeat]:
        """Yield the pending record at the end of the process."""
        if self._pending:
            yield self._send(at)

    def _is_news(self, at: float) -> bool:
        last = self._last
        if last is None or at - last.at >= EVERY:
            return True
        silence_ends = self._pending and self._times["progress_at"] - last.progress_at > SILENT
        return silence_ends or (self._names["phase"] != last.phase and at - last.at >= SOON)

    def _send(self, at: float) -> Heartbeat:
        self._last = Heartbeat(
            at=at, sent_at=at, longest=self._longest, longest_phase=self._longest_phase,
            **self._names, **self._counts, **self._times,
        )  # fmt: skip
        self._longest, self._pending = 0.0, False
        return self._last


def process(sample: dict[str, Any]) -> Process:
    """Return a sample of a trace as the reading that the process sensor would have given."""
    census = sample.get("cz")
    return Process(
        state=_STATES.get(str(sample.get("st")), "sleeping"),
        cpu=sample["cpu"] + sample.get("kcpu", 0.0),
        members=1 + sample.get("nk", 0),
        switches=sample.get("vc", 0) + sample.get("nvc", 0),
        io=sample.get("rchar", 0) + sample.get("wchar", 0),
        disk=sample.get("rb", 0) + sample.get("wb", 0),
        minor_faults=sample.get("minflt"),
        major_faults=sample.get("majflt"),
        rss=sample.get("rss", 0) * 1024,
        run_queue=sample.get("rq"),
        remote=False,  # the recorded trainings read local files
        census=None if census is None else {_SITES.get(site, "other"): n for site, n in census.items()},
    )


class MemoryPressure:
    """Memory pressure, from the counters of a trace."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._stalled = 0.0

    def tick(self, at: float, sample: dict[str, Any]) -> Iterator[Sampled]:
        """Take a sample; yield a reading every few seconds."""
        pressure = sample.get("psi")
        if not pressure or (self._at is not None and at - self._at < MEMORY_EVERY):
            return
        stalled = pressure[2] / 1e6  # microseconds
        if self._at is not None:
            share = (stalled - self._stalled) / (at - self._at)
            available = sample.get("memav", 0) * 1024
            yield Sampled(at=at, reading=Memory(stall_some=share, available=available))
        self._at, self._stalled = at, stalled

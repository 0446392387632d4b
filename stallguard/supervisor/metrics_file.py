"""Writes the state of a run into a file for node_exporter, every 15 seconds and once more at the end.

On a thread of its own: a file system that hangs must not delay a decision.  A reader finds the whole old file or the
whole new one.

The format is the text format of Prometheus, for the textfile collector of node_exporter:
https://prometheus.io/docs/instrumenting/exposition_formats/.  Each series has the label `run`.  What is not
known has no sample, rather than a zero that would be drawn.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from stallguard.core import lifecycle, time_spent
from stallguard.supervisor.live_status import LiveStatus
from stallguard.worker import Worker

EVERY = 15.0  # seconds between two versions; Prometheus reads every 15 s to 1 min
LAST = 5.0  # seconds that the end of a run waits for the last version


class MetricsFile:
    """Of one run, from `open` to `close`."""

    def __init__(self, path: Path, status: Callable[[], LiveStatus], trouble: Callable[[str], None]) -> None:
        """`status` is called on the thread; `trouble` with the first error of the file."""
        self._path, self._status, self._trouble = path, status, trouble
        self._is_over = threading.Event()
        self._code: int | None = None
        self._has_failed = False
        self._thread = Worker(self._work, "metrics")

    def open(self) -> None:
        """Begin to write.  Raises RuntimeError or MemoryError if there is no thread."""
        self._thread.start()

    def close(self, code: int | None) -> None:
        """Write the last version, and stop.  `code`: the exit code of the run."""
        self._code = code
        self._is_over.set()
        self._thread.join(LAST)

    def _work(self) -> None:
        is_over = False
        while True:
            try:
                write(
                    self._path,
                    text(self._status(), time.time(), self._code if is_over else None),
                )
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    self._trouble(
                        f"{self._path} cannot be written ({error.strerror}): metrics.textfile is out of date"
                    )
            if is_over:
                return
            is_over = self._is_over.wait(EVERY)


def write(path: Path, text: str) -> None:
    """Replace the file by `text`; readable for all, because node_exporter is another user.  Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")  # does not end in .prom, so it is not read
    with contextlib.suppress(FileNotFoundError):
        draft.unlink()
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
        draft.chmod(0o644)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


class Metric(NamedTuple):
    """One metric with its samples: a value each, by further labels."""

    name: str
    kind: str  # gauge or counter
    help: str
    samples: list[tuple[dict[str, str], float]]


def text(status: LiveStatus, now: float, code: int | None = None) -> str:
    """Return the file.  `now`: seconds since the epoch; `code`: the exit code of a run that is over."""
    lines = []
    for metric in metrics(status, now, code):
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        for labels, value in metric.samples:
            shown = ",".join(
                f'{name}="{_escaped(word)}"' for name, word in ({"run": status.run} | labels).items()
            )
            lines.append(f"{metric.name}{{{shown}}} {_number(value)}")
    return "\n".join(lines) + "\n"


def metrics(status: LiveStatus, now: float, code: int | None = None) -> Iterator[Metric]:
    """Yield the metrics of a run that have a value."""
    state = status.state if code is None else (lifecycle.DONE if code == 0 else lifecycle.FAILED)
    states = [({"state": name}, float(name == state)) for name in lifecycle.MEANING]
    yield Metric("stallguard_state", "gauge", "1 for the state that the run is in, 0 for the others.", states)
    yield from _one("stallguard_updated_timestamp_seconds", "gauge", "When this file was written.", now)
    yield from _one("stallguard_exit_code", "gauge", "Exit code of the run; only if it is over.", code)
    attempt, rates = status.attempt or None, status.rates
    progress = None if status.progress is UNSET else status.progress
    yield from _one("stallguard_attempt", "gauge", "Number of the attempt, from 1.", attempt)
    restarts = None if attempt is None else attempt - 1
    yield from _one("stallguard_restarts_total", "counter", "Restarts of the training.", restarts)
    yield from _one("stallguard_stalls_total", "counter", "Stalls of the training.", status.incidents)
    crashes = "Attempts that ended by themselves, with another code than 0."
    yield from _one("stallguard_crashes_total", "counter", crashes, status.crashes)
    yield from _one("stallguard_batches_total", "counter", "Batches that were trained.", status.batches)
    pace = None if rates is UNSET else rates.batches
    yield from _one("stallguard_batches_per_second", "gauge", "Pace of the last 15 seconds.", pace)
    yield from _one("stallguard_silent_seconds", "gauge", "Time since the last progress.", status.silent)
    yield from _one(
        "stallguard_effective_ratio",
        "gauge",
        "Effective training time, a share of the time.",
        status.effective,
    )
    if status.spent is not UNSET:
        times = msgspec.structs.asdict(status.spent)
        spent = [({"category": name}, times[name]) for name in time_spent.CATEGORIES]
        yield Metric("stallguard_spent_seconds_total", "counter", "Where the time of the run went.", spent)
    if progress is not None:
        broken = progress.loss_not_finite
        newest = float(broken) if broken in ("nan", "inf", "-inf") else progress.loss
        epoch = progress.epoch + 1 if progress.epoch >= 0 else None
        yield from _one("stallguard_epoch", "gauge", "Epoch, from 1.", epoch)
        yield from _one("stallguard_loss", "gauge", "The newest loss.", newest)


def _one(name: str, kind: str, meaning: str, value: object) -> Iterator[Metric]:
    if isinstance(value, int | float):
        yield Metric(name, kind, meaning, [({}, float(value))])


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(word: str) -> str:
    r"""Return a label's value: backslash, quote and newline are written as \\, \" and \n."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

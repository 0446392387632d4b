"""The state of a live run as one plain value, for `status` and `ls --live`, and as a file for node_exporter.

`MetricsFile` writes it every 15 seconds and once more at the end, on a thread of its own: a file system that hangs must
not delay a decision.  A reader finds the whole old file or the whole new one.  Its format is the text format of
Prometheus, for the textfile collector of node_exporter: https://prometheus.io/docs/instrumenting/exposition_formats/.
Each series has the label `run`.  What is not known has no sample, rather than a zero that would be drawn.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from stallguard.core import bottlenecks, fold, ledger, lifecycle, time_spent
from stallguard.core.diagnosis import metrics
from stallguard.core.events import Heartbeat
from stallguard.core.fold import NextStep
from stallguard.core.history import History
from stallguard.core.limits import Limits
from stallguard.core.messages import limit
from stallguard.core.profile import Spot
from stallguard.core.readings import AnyReading
from stallguard.core.run import Run, Training, counted_batches, is_muted
from stallguard.core.time_spent import Spent
from stallguard.core.verdicts import Bottleneck, Finding, Judgement
from stallguard.storage.run_files import ChannelRecord
from stallguard.worker import Worker

SCHEMA = 1
LATELY = 15.0  # seconds over which a pace is measured
SHOWN = 3  # bottlenecks, and places with the most time
SENSORS = ("process", "device", "memory", "machine", "files")

METRICS_EVERY = 15.0  # seconds between two versions; Prometheus reads every 15 s to 1 min
METRICS_LAST = 5.0  # seconds that the end of a run waits for the last version


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detector's opinion; a field that is not there has its usual value, which is no news."""

    step: str = "off"  # healthy, suspect, stalled, recovering, stopped (SIGSTOP), exited, off
    row: str = "FIRST"  # of the detector's table: which limits hold
    phase: str = "importing"  # of the training
    # What the process does: deadlock, external wait, busy device, idle device, shared device,
    # spin, working, unknown.
    evidence: str = "unknown"
    gap: float = 0.0  # seconds without progress, on a clock that stands still while the machine sleeps
    threshold: float | None = 0.0  # seconds of silence that are a stall; null: no time limit holds
    since: float = 0.0  # when the last progress was, seconds on the supervisor's clock
    certain: bool = False  # no waiting longer would change the opinion
    slow: float = 1.0  # batch time over its usual one
    slow_cause: str = ""  # input, contention, heavier, memory
    pulse: bool | None = None  # a thread of the process could run lately; null: not known


class Shown(msgspec.Struct, frozen=True):
    """A training of the run.  What only one that lives has is not there for one that is over."""

    number: int
    pid: int
    place: str
    command: str
    how: str  # its end: ended, failed, vanished, replaced, exited; "" while it lives
    batches: int
    seconds: float
    fits: int | UnsetType = UNSET  # calls of fit; of one that is over
    in_focus: bool | UnsetType = UNSET  # the judgement of the run is about it
    judgement: Judged | UnsetType = UNSET
    silent: float | UnsetType | None = UNSET  # seconds since its last progress
    rate: float | UnsetType | None = UNSET  # batches a second, lately
    progress: Heartbeat | UnsetType | None = UNSET  # the newest record of its probe


class NotSaved(msgspec.Struct, frozen=True):
    """A process of which no checkpoint can be written now."""

    pid: int
    why: str
    seconds: float  # of training that a kill now would cost
    kept: bool  # there is an earlier checkpoint


class ProgressRates(msgspec.Struct, frozen=True):
    """Paces; null: not known yet."""

    batches: float | None  # a second, lately
    cpu: float | None  # cores that it keeps busy


class LiveStatus(msgspec.Struct, frozen=True):
    """A run that lives.  Of one that is new, silent or unguarded little more than its state is known."""

    schema: int
    run: str
    state: str  # as in ARCHITECTURE.md; unguarded: stallguard was killed; silent: it gives no answer
    outside: str | UnsetType = UNSET  # why it is watched from outside only, once that is known
    attempt: int | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    factor: int | UnsetType = UNSET
    device: str | UnsetType = UNSET
    seconds: float | UnsetType = UNSET  # since the run began
    batches: int | UnsetType = UNSET
    silent: float | UnsetType | None = UNSET  # seconds since the last progress
    judgement: Judged | UnsetType = UNSET
    progress: Heartbeat | UnsetType | None = UNSET  # the newest record of the probe
    readings: dict[str, AnyReading] | UnsetType = UNSET  # the newest of each sensor, by its name
    rates: ProgressRates | UnsetType = UNSET
    findings: tuple[Finding, ...] | UnsetType = UNSET  # why it stalls, the likeliest first
    bottlenecks: tuple[Bottleneck, ...] | UnsetType = UNSET  # what makes it slow, worst first
    spots: tuple[Spot, ...] | UnsetType = UNSET  # the places of the script with the most time
    watched: float | UnsetType = UNSET  # seconds of training that their samples cover
    incidents: int | UnsetType = UNSET  # stalls so far
    crashes: int | UnsetType = UNSET  # attempts so far that ended by themselves, with another code than 0
    lost: float | UnsetType = UNSET  # seconds that stalls, crashes and restarts cost
    effective: float | UnsetType | None = UNSET  # share of the time, 0..1; null: not known
    spent: Spent | UnsetType = UNSET  # where the time went
    next_step: NextStep | UnsetType | None = UNSET  # what stallguard does next; null: nothing that is known
    given_back: int | UnsetType = UNSET  # bytes of emptied caches (policy.empty_caches); not there: none
    muted: float | UnsetType | None = UNSET  # seconds for which stall handling is still paused
    notifications: list[ChannelRecord] | UnsetType = UNSET  # of each channel that was tried
    unsaved: list[NotSaved] | UnsetType = UNSET  # not there: no checkpoint was refused
    trainings: list[Shown] | UnsetType = UNSET
    why: str | UnsetType = UNSET  # why nothing more is known


class Living(msgspec.Struct, frozen=True):
    """The runs that live."""

    schema: int
    runs: list[LiveStatus]


def snapshot(
    name: str, run: Run | None, now: float, limits: Limits | None = None, notifications: Sequence[ChannelRecord] = (),
) -> LiveStatus:  # fmt: skip
    """Return what `stallguard status` shows.

    `now`: monotonic seconds; without `limits` the next step is not known; `notifications`: what became of them.
    """
    if run is None:
        return LiveStatus(SCHEMA, name, "new")
    judgement, times, current = run.detector_state.judgement, ledger.spent(run.ledger, now), run.current
    profile = run.history.stages[-1].profile if run.history.stages else None
    alive = [one for one in current.trainings if not one.over]
    unsaved = [
        NotSaved(one.pid, one.why, round(max(0.0, now - one.since), 1), one.is_kept)
        for one in current.unsaved if any(training.pid == one.pid for training in alive)
    ]  # fmt: skip
    over = [
        Shown(one.number, one.pid, one.place, one.command, one.how, one.batches, one.seconds, one.fits)
        for one in current.over
    ]
    return LiveStatus(
        schema=SCHEMA, run=name, state=run.state, outside=run.history.outside or UNSET, attempt=current.number,
        pid=current.pid, factor=current.slices, device=current.device, seconds=round(time_spent.total(times), 1),
        batches=UNSET if (done := counted_batches(run)) is None else done, silent=silence(judgement, now),
        judgement=judged(judgement), progress=run.history.heartbeat,
        readings={name: trail[-1].reading for name in SENSORS if (trail := getattr(run.history, name))},
        rates=ProgressRates(pace(run.history), metrics.cpu(run.history, now)), findings=current.findings,
        bottlenecks=bottlenecks.bottlenecks(run.history)[:SHOWN], spots=profile.spots[:SHOWN] if profile else (),
        watched=profile.seconds if profile else 0.0, incidents=run.totals.incidents, crashes=run.totals.crashes,
        lost=round(time_spent.total(times, time_spent.LOST), 1), effective=time_spent.effective(times), spent=times,
        next_step=fold.next_step(replace(run, now=max(run.now, now)), limits) if limits else None,
        notifications=list(notifications), unsaved=unsaved or UNSET, given_back=run.totals.given_back or UNSET,
        muted=round(run.quiet_until - now, 1) if is_muted(run) else None,
        trainings=[*over, *(living(one, run, now) for one in alive if one.trains)],
    )  # fmt: skip


def silence(judgement: Judgement, now: float) -> float | None:
    """Return the seconds since the last progress; None before the first."""
    return round(max(0.0, now - judgement.since), 1) if judgement.since else None


def living(one: Training, run: Run, now: float) -> Shown:
    """Return what is shown of a training that lives."""
    judgement = one.detector_state.judgement
    return Shown(
        number=one.number, pid=one.pid, place=one.place, command=one.command, how="",
        in_focus=one.key == run.current.focus, judgement=judged(judgement), batches=one.batches,
        seconds=round(now - one.began, 1), silent=silence(judgement, now), rate=pace(one.history),
        progress=one.heartbeat,
    )  # fmt: skip


def judged(judgement: Judgement) -> Judged:
    """Return what is shown of a judgement."""
    fields = msgspec.structs.asdict(judgement)
    del fields["timers_known"]  # for the diagnosis
    return Judged(**{**fields, "threshold": limit(judgement.threshold)})


def pace(history: History) -> float | None:
    """Return the batches a second of the last seconds; None if there are too few records."""
    heartbeat = history.heartbeat
    before = next((old for old in history.heartbeats if heartbeat and heartbeat.at - old.at <= LATELY), None)
    if heartbeat is None or before is None or heartbeat.at <= before.at:
        return None
    return (heartbeat.beats - before.beats) / (heartbeat.at - before.at)


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
        self._thread.join(METRICS_LAST)

    def _work(self) -> None:
        is_over = False
        while True:
            try:
                code = self._code if is_over else None
                write_metrics(self._path, metrics_text(self._status(), time.time(), code))
                self._has_failed = False
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    self._trouble(f"{self._path} cannot be written ({error.strerror}): metrics.textfile is out of date")
            if is_over:
                return
            is_over = self._is_over.wait(METRICS_EVERY)


def write_metrics(path: Path, text: str) -> None:
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


def metrics_text(status: LiveStatus, now: float, code: int | None = None) -> str:
    """Return the file.  `now`: seconds since the epoch; `code`: the exit code of a run that is over."""
    lines = []
    for name, kind, meaning, samples in _metrics(status, now, code):
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            each = ({"run": status.run} | labels).items()
            shown = ",".join(f'{label}="{_escaped(word)}"' for label, word in each)
            lines.append(f"{name}{{{shown}}} {_number(value)}")
    return "\n".join(lines) + "\n"


Samples = list[tuple[dict[str, str], float]]  # a value each, by further labels


def _metrics(status: LiveStatus, now: float, code: int | None) -> Iterator[tuple[str, str, str, Samples]]:
    """Yield name, kind (gauge or counter), meaning and samples of each metric of a run that has a value."""
    state = status.state if code is None else (lifecycle.DONE if code == 0 else lifecycle.FAILED)
    states: Samples = [({"state": name}, float(name == state)) for name in lifecycle.MEANING]
    attempt = status.attempt or None
    newest = status.progress if isinstance(status.progress, Heartbeat) else None
    epoch, loss = None, None
    if newest is not None:
        epoch = newest.epoch + 1 if newest.epoch >= 0 else None
        is_broken = newest.loss_not_finite in ("nan", "inf", "-inf")
        loss = float(newest.loss_not_finite) if is_broken else newest.loss
    spent: Samples = []
    if status.spent is not UNSET:
        spent = [({"category": name}, getattr(status.spent, name)) for name in time_spent.CATEGORIES]
    rows: list[tuple[str, str, str, object]] = [
        ("state", "gauge", "1 for the state that the run is in, 0 for the others.", states),
        ("updated_timestamp_seconds", "gauge", "When this file was written.", now),
        ("exit_code", "gauge", "Exit code of the run; only if it is over.", code),
        ("attempt", "gauge", "Number of the attempt, from 1.", attempt),
        ("restarts_total", "counter", "Restarts of the training.", None if attempt is None else attempt - 1),
        ("stalls_total", "counter", "Stalls of the training.", status.incidents),
        ("crashes_total", "counter", "Attempts that ended by themselves, with another code than 0.", status.crashes),
        ("batches_total", "counter", "Batches that were trained.", status.batches),
        ("batches_per_second", "gauge", "Pace of the last 15 seconds.", status.rates and status.rates.batches),
        ("silent_seconds", "gauge", "Time since the last progress.", status.silent),
        ("effective_ratio", "gauge", "Effective training time, a share of the time.", status.effective),
        ("spent_seconds_total", "counter", "Where the time of the run went.", spent),
        ("epoch", "gauge", "Epoch, from 1.", epoch),
        ("loss", "gauge", "The newest loss.", loss),
    ]  # fmt: skip
    for name, kind, meaning, value in rows:
        samples = [({}, float(value))] if isinstance(value, int | float) else value
        if isinstance(samples, list) and samples:
            yield f"stallguard_{name}", kind, meaning, samples


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(word: str) -> str:
    r"""Return a label's value: backslash, quote and newline are written as \\, \" and \n."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

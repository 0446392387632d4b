"""One try of `find-batch`: a guarded run that ends after some batches, and whether its batch size survived them.

Must not choose the size: core.policy.batch_search does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stallguard.config import Loaded
from stallguard.core.diagnosis.causes import CAUSES, UNKNOWN
from stallguard.core.diagnosis.clues.memory import PSI_FULL
from stallguard.core.readings import Memory
from stallguard.core.run import Run, beats
from stallguard.launch.request import Request
from stallguard.supervisor.live_status import pace
from stallguard.supervisor.run_options import RunOptions
from stallguard.supervisor.session import Session

# What a try is run with, over the user's own settings: it ends at the first trouble, and leaves nothing behind.
SETTINGS = {
    "policy.max_restarts": 0,
    "policy.on_stall": "stop",
    "checkpoint.enabled": False,
    "run.resume": "no",
    "output.quiet": True,
    "notify.on": (),
    "notify.desktop": False,
}
UNCUT = "its batches cannot be cut from outside: name the option that takes its batch size, with --batch-flag"
LEVELS = ("normal", "warn", "critical")


class TrialVerdict(NamedTuple):
    """How a try ended.  `trouble`: in words, "" if it survived; `hopeless`: no other size can help."""

    batches: int
    trouble: str = ""
    hopeless: bool = False
    memory: int | None = None  # bytes of the training at most
    rate: float | None = None  # batches a second


class BatchTrial:
    """A run that is stopped after `steps` batches, or at the first trouble."""

    def __init__(
        self, request: Request, loaded: Loaded, env: Mapping[str, str], *, steps: int, factor: int
    ) -> None:
        """As Session.  `factor`: the parts of a batch of its only attempt."""
        self.dir, self._steps = request.run, steps
        options = RunOptions(
            announce=False,  # find-batch itself reports its tries
            output_to_file=True,
            trial_factor=factor,
            stop_when=lambda run: beats(run) >= steps or bool(run.totals.incidents),
        )
        self._session = Session(request, loaded, env, options=options)

    def guard(self, kept: list[int]) -> int:
        """Run it to its end; as Session.guard."""
        return self._session.guard(kept)

    def verdict(self) -> TrialVerdict:
        """Return how it ended; after `guard`."""
        run = self._session.context.current.run
        if run is None:
            return TrialVerdict(0, "it never began", hopeless=True)
        return judged(run, self._steps)._replace(memory=largest(run), rate=pace(run.history))


def largest(run: Run) -> int | None:
    """Return the bytes that the training took at most, as far as was seen."""
    seen = (seen.reading for seen in run.history.process)
    sizes = [reading.footprint or reading.rss or 0 for reading in seen]
    return max(sizes, default=0) or None


def judged(run: Run, steps: int) -> TrialVerdict:
    """Return whether a try of `steps` batches survived, from the run at its end."""
    count = beats(run)
    if run.interrupts and not (count >= steps or run.totals.incidents):
        return TrialVerdict(count, "it was interrupted", hopeless=True)
    if run.whole:
        return TrialVerdict(count, run.whole, hopeless=True)
    if run.factor > 1 and run.history.heartbeat is not None and count and run.history.heartbeat.factor == 1:
        return TrialVerdict(count, UNCUT, hopeless=True)
    if run.totals.incidents:
        return TrialVerdict(count, "it stalled")
    if count < steps and run.code != 0:
        cause = CAUSES[run.findings[0].cause if run.findings else UNKNOWN]
        return TrialVerdict(count, f"it ended: {cause.title}", hopeless=cause.any_batch_size)
    readings = [seen.reading for seen in run.history.memory if seen.at >= run.launched]
    if count and pressed(readings):
        return TrialVerdict(count, "the machine came under memory pressure")
    return TrialVerdict(count) if count else TrialVerdict(0, "no batch was seen", hopeless=True)


def pressed(readings: Sequence[Memory]) -> bool:
    """Return whether memory became tight, compared with how it was at first."""
    if not readings:
        return False
    first = readings[0]
    return any(_level(reading) > _level(first) for reading in readings) or (
        (first.stall_full or 0.0) < PSI_FULL <= max(reading.stall_full or 0.0 for reading in readings)
    )


def _level(reading: Memory) -> int:
    return LEVELS.index(reading.pressure) if reading.pressure in LEVELS else 0

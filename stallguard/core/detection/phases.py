"""Which row of the limits judges a gap: the phase that the probe reports, made finer by its counters.

The phase of a gap is the last event that was seen, so it is known while the gap is still open.
This module must not judge.
"""

from __future__ import annotations

from stallguard.core.events import Heartbeat

FIRST, STEP, EPOCH_FIRST_STEP, EPOCH_BOUNDARY, BATCH_CALLBACKS = (
    "FIRST",
    "STEP",
    "EPOCH_FIRST_STEP",
    "EPOCH_BOUNDARY",
    "BATCH_CALLBACKS",
)
VALIDATION_FIRST_STEP, VALIDATION_STEP, SAVE, UNCLASSIFIED, EXIT = (
    "VALIDATION_FIRST_STEP",
    "VALIDATION_STEP",
    "SAVE",
    "UNCLASSIFIED",
    "EXIT",
)
IMPORTING, IDLE, NAMED, OUTSIDE, DEVICE = "IMPORTING", "IDLE", "NAMED", "OUTSIDE", "DEVICE"

IN_STEP = (STEP, VALIDATION_STEP)
# In these a job without remote hosts gets only `local` times the limit for external waits.
LOCAL = (STEP, VALIDATION_STEP, EPOCH_FIRST_STEP)

# In these the pace of the phase shows a loop that never ends, and a device that is busy without end.
BETWEEN_STEPS = (EPOCH_BOUNDARY, BATCH_CALLBACKS, VALIDATION_FIRST_STEP, SAVE, UNCLASSIFIED)
PACED = (*LOCAL, *BETWEEN_STEPS)

_PLAIN = {
    "importing": IMPORTING,
    "idle": IDLE,
    "tracing": FIRST,
    "first run": FIRST,
    "between": BATCH_CALLBACKS,
    "epoch end": EPOCH_BOUNDARY,
    "checkpoint": SAVE,
    "finishing": EXIT,
    "named": NAMED,
}
_CHECKING = ("validation", "prediction")
# A script that only calls stallguard.beat() never leaves "importing": no hook saw a library.
_STREAMING = ("importing", "idle", "between", "step")
_SINGLE_STREAM = ("none", "poll", "hand")  # sources that count beats but know no phases


def row_of(phase: str, *, source: str, fit_beats: int, batch: int, checked: bool) -> str:
    """Return the row for a phase of wire.PHASES.

    `fit_beats`: batches of this fit so far; `batch`: of this epoch (-1 unknown); `checked`: a batch of this
    validation is done.
    """
    if phase in _CHECKING:
        return VALIDATION_STEP if checked else VALIDATION_FIRST_STEP
    if phase in ("step", "input", "epoch start") and fit_beats <= 0:
        return FIRST
    if source in _SINGLE_STREAM and phase in _STREAMING and fit_beats > 0:
        return UNCLASSIFIED
    if phase == "step":
        return EPOCH_FIRST_STEP if batch == 0 else STEP
    if phase == "input":
        # If epochs are not known, each fetch can be the first of an iterator.
        return STEP if batch > 0 else EPOCH_FIRST_STEP
    return EPOCH_BOUNDARY if phase == "epoch start" else _PLAIN.get(phase, NAMED)


def beats_of_fit(heartbeat: Heartbeat) -> int:
    """Return the batches of this fit; of the whole process if no loop of Keras is known."""
    return heartbeat.fit_beats if heartbeat.fits else max(heartbeat.fit_beats, heartbeat.beats)


def row_now(heartbeat: Heartbeat, checks_before: int) -> str:
    """Return the row of the gap after a record.  `checks_before`: checks when this validation began."""
    return row_of(
        heartbeat.phase,
        source=heartbeat.source,
        fit_beats=beats_of_fit(heartbeat),
        batch=heartbeat.batch,
        checked=heartbeat.checks > checks_before,
    )


def row_of_longest(before: Heartbeat, heartbeat: Heartbeat) -> str:
    """Return the row of the longest gap between two records.

    It is not known which of the gaps it was, so it counts for an epoch or a fit that began in between.
    """
    new_fit = heartbeat.fits != before.fits or beats_of_fit(before) <= 0
    new_epoch = new_fit or heartbeat.epoch != before.epoch or before.batch == 0
    entered = before.phase not in _CHECKING or before.checks == heartbeat.checks
    return row_of(
        heartbeat.longest_phase,
        source=heartbeat.source,
        fit_beats=0 if new_fit else beats_of_fit(heartbeat),
        batch=0 if new_epoch and heartbeat.batch >= 0 else heartbeat.batch,
        checked=not entered,
    )

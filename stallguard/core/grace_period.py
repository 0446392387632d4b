"""Whether a stalled training does anything after SIGTERM, so that the grace period is of use.

A script can handle SIGTERM: it saves and ends, or only sets a flag and ends after the batch, as PyTorch Lightning does.
In a step that never returns the flag is never read.  The difference is what the process does after the signal: a
handler that saves computes, writes, or waits for a disk, a timer or a network, and keeps its grace period.

If the system shows the wait sites of all threads (Linux), only a deadlock counts: nothing can wake the process.
Otherwise an idle process without a connection to a remote host counts.  Pure, as core.fold.
"""

from __future__ import annotations

from stallguard.core import history, trainings
from stallguard.core.detection import activity
from stallguard.core.diagnosis import metrics
from stallguard.core.limits import Limits
from stallguard.core.run import Run
from stallguard.core.training import Training

WAIT = 3.0  # seconds after SIGTERM; the probe's own handler acts after 2 s on a step that does not return
SAVING = "checkpoint"  # phase of the probe


def is_in_vain(run: Run, limits: Limits) -> bool:
    """Return whether SIGTERM was sent WAIT seconds ago to stalled trainings, and none has done anything since."""
    judged = trainings.judged(run)
    return run.now >= run.current.still + WAIT and all(_is_inert(one, run, limits) for one in judged)


def _is_inert(training: Training, run: Run, limits: Limits) -> bool:
    """Return whether a training is stalled, did nothing since SIGTERM, and waits for nothing that can wake it."""
    past, detector_state = training.history, training.detector_state
    if detector_state.judgement.step != "stalled" or history.is_saving(past, run.now):
        return False
    heartbeat = training.heartbeat
    if heartbeat is not None and (heartbeat.phase == SAVING or heartbeat.progress_at > run.current.still):
        return False
    seconds, most = run.now - run.current.still, limits.detector
    used = metrics.cpu(past, run.now, seconds)
    moved = (metrics.io(past, run.now, seconds), metrics.disk(past, run.now, seconds))
    if used is None or used >= most.idle_cpu or any((rate or 0.0) >= most.idle_io for rate in moved):
        return False
    runs = activity.current(detector_state.evidence, detector_state.began)
    if detector_state.evidence.census >= 0:
        return runs.deadlock >= WAIT
    return runs.external >= WAIT and detector_state.evidence.remote is False

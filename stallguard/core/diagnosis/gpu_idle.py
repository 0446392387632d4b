"""Whether the next attempt can start: after a process that used the GPU, only when the GPU is idle.

A GPU that stays busy after its process is gone is freed by nothing but a reboot (reported for Metal); a second
training on it would hang at once.  On other systems a busy GPU is used by another program.  The fold calls `gpu_wait`
before it starts an attempt, and `gpu_busy` when the wait is over.  This module must not decide what follows.
"""

from __future__ import annotations

from stallguard.core.diagnosis import causes, diagnose, metrics
from stallguard.core.diagnosis.clues.gpu import DRAINED
from stallguard.core.history import History
from stallguard.core.verdicts import Finding

LOOK = 12.0  # seconds in which the sensor of the GPU has its next reading, if it still works
SETTLE = 1.0  # seconds after the end in which a reading can still include the process' last work


def gpu_wait(history: History, now: float) -> float:
    """Return for how many seconds the next attempt should wait for the GPU; 0 if it need not wait.

    At most about a minute after the end of the attempt; what is busy by then is diagnosed as such.
    """
    if history.exited is None or not history.used_gpu or not metrics.on_metal(history):
        return 0.0
    rested = history.exited.at + SETTLE
    if not any(seen.at >= rested for seen in history.device):
        return max(0.0, history.exited.at + LOOK - now)
    busy = metrics.gpu_busy_since(history, rested)
    unsure = 0 < busy < DRAINED and now < rested + DRAINED + LOOK  # the sensor can have stopped
    return max(1.0, rested + DRAINED - now) if unsure else 0.0


def gpu_busy(history: History) -> tuple[Finding, ...]:
    """Return the finding that the GPU is busy although the process that used it has ended; nothing if it is idle."""
    if history.exited is None:
        return ()
    findings = diagnose.diagnose_exit(history, history.exited)
    return tuple(finding for finding in findings if finding.cause == causes.GPU_BUSY_AFTER_KILL)

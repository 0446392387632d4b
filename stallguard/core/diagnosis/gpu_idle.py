"""May the next attempt start?  After a process that used the GPU, only when the GPU has come to rest.

A GPU that stays busy after its process is gone is freed by nothing but a reboot (reported for Metal); a second
training on it would hang at once.  Elsewhere a busy GPU is somebody else's work.  Who starts attempts asks
`gpu_wait` first, and `gpu_busy` when it is told to wait no longer.  This module may not decide what follows.
"""

from __future__ import annotations

from stallguard.core.diagnosis import causes, diagnose, metrics
from stallguard.core.diagnosis.clues.gpu import DRAINED
from stallguard.core.history import History
from stallguard.core.verdicts import Finding

LOOK = 12.0  # seconds in which the sensor of the GPU has its next reading, if it still answers
SETTLE = 1.0  # seconds after the end that a reading may still speak of the process' last work


def gpu_wait(history: History, now: float) -> float:
    """Return for how many seconds the next attempt should wait for the GPU; 0 where it need not.

    At most about a minute after the end of the attempt; what is busy by then is diagnosed as such.
    """
    if history.exited is None or not history.used_gpu or not metrics.on_metal(history):
        return 0.0
    rested = history.exited.at + SETTLE
    if not any(seen.at >= rested for seen in history.device):
        return max(0.0, history.exited.at + LOOK - now)
    busy = metrics.gpu_busy_since(history, rested)
    unsure = 0 < busy < DRAINED and now < rested + DRAINED + LOOK  # the sensor may have fallen silent
    return max(1.0, rested + DRAINED - now) if unsure else 0.0


def gpu_busy(history: History) -> tuple[Finding, ...]:
    """Return the finding that the GPU is busy although the process that used it is gone; nothing where it is not."""
    if history.exited is None:
        return ()
    findings = diagnose.diagnose_exit(history, history.exited)
    return tuple(finding for finding in findings if finding.cause == causes.GPU_BUSY_AFTER_KILL)

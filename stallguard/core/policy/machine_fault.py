"""When the machine, not the training, is the reason for a stall or an end: another machine can train on.

One machine alone restarts as long as a remedy is left.  A job that others could continue leaves a machine sooner, if
the setting policy.leave_machine says so (jobs of a fleet).

A wedged GPU is reported to hang each new process until the machine restarts (the reports on Metal training with mode
F10), so a second device wait with no healthy attempt in between counts as one.  A kill for lack of memory counts at
the second: the first can be a peak of another program.  This module must not decide anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from stallguard.core.diagnosis import causes
from stallguard.core.policy.attempts import AttemptHistory, one_trouble
from stallguard.core.verdicts import Finding

# How often in a row a cause must have occurred, with no healthy attempt in between.
TIMES = {
    causes.DEVICE_WAIT: 2,
    causes.GPU_ERROR_STICKY: 2,
    causes.OUT_OF_MEMORY_KILL: 2,
    causes.STUCK_IN_KERNEL: 1,
    causes.GPU_BUSY_AFTER_KILL: 1,
    causes.MACHINE_FROZE: 1,
}


def fault(findings: Sequence[Finding], past: AttemptHistory, healthy: float) -> str:
    """Return in words why this machine is the reason, "" if it is not known to be.

    `past`: with the attempt that ends last; `healthy`: seconds of progress after which an attempt counts as healthy.
    """
    if not findings or findings[0].cause not in TIMES:
        return ""
    cause = findings[0].cause
    trouble = reversed(one_trouble(past, healthy))
    times = sum(1 for _ in itertools.takewhile(lambda one: one.cause == cause, trouble))
    if times < TIMES[cause]:
        return ""
    return causes.title(cause) + (f", {times} times in a row" if times > 1 else "")

"""Whether the machine, not the training, is the reason for a run's end: then another machine continues the job.

Two ends are the machine's even if other causes were found before: a process that no signal ends, and a GPU that stays
busy without its process.  Others are when they repeat: core.policy.machine_fault.  This module must not look at a
clock.
"""

from __future__ import annotations

from stallguard.core import lifecycle
from stallguard.core.diagnosis import causes
from stallguard.core.policy import machine_fault
from stallguard.core.run import Run
from stallguard.errors import GAVE_UP, STOPPED_ON_TIME

UNKILLABLE = "its process cannot be ended"


def fault(run: Run, healthy: float) -> str:
    """Return in words why the machine is the reason for the end of `run`, "" if it is not.

    `healthy`: seconds of progress after which an attempt counts as healthy.
    """
    if run.code == 0 or (run.code == STOPPED_ON_TIME and run.current.script_code is None):
        return ""
    if run.state == lifecycle.FAILED and run.code == GAVE_UP:  # a start that failed has another code
        return UNKILLABLE
    # Found after the attempt's end, which has a cause of its own; an attempt that was to end is in no history.
    if (
        run.code == GAVE_UP
        and run.current.findings
        and run.current.findings[0].cause == causes.GPU_BUSY_AFTER_KILL
    ):
        return causes.title(causes.GPU_BUSY_AFTER_KILL)
    return machine_fault.fault(run.current.findings, run.past, healthy)

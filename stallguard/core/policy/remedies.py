"""The remedies that settings order instead of a cause's own: policy.on_stall for all stalls, policy.causes for one.

A cause's own remedy is a column of its row in core.diagnosis.causes.  This module must not decide anything.
"""

from __future__ import annotations

from stallguard.core.diagnosis.remedy import CPU, HALF, NOTIFY, SAME, STOP, Remedy, no_restart

ORDERS: dict[str, Remedy] = {
    "restart": Remedy((SAME,), "{setting} asks for a restart", persists=True),
    "halve": Remedy((HALF,), "{setting} asks for a smaller batch", persists=True),
    "cpu": Remedy((CPU, SAME), "{setting} asks for the CPU", persists=True),
    "stop": no_restart(STOP, "{setting} asks to stop at a stall"),
    "notify": no_restart(NOTIFY, "{setting} asks for a notification and nothing else"),
}

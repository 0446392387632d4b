"""What the documents promise about a stall or an end, as values: the oracle of the matrix, written without the code.

Each table names the page that it was copied from.  If the product changes a promise, the page and this file change
with it; this file must import nothing of stallguard.
"""

from __future__ import annotations

from typing import NamedTuple

SAME, HALF, CPU = "same", "half", "cpu"
FOR_EVER = 1000


class Remedy(NamedTuple):
    """docs/causes.md.  `steps`: in order; `repeats`: the last one as long as it can be taken."""

    steps: tuple[str, ...]
    repeats: bool = False


REMEDIES = {
    "device-wait": Remedy((SAME, HALF, CPU)),
    "gpu-error": Remedy((SAME, HALF, CPU)),
    "host-deadlock": Remedy((SAME, HALF)),
    "busy-loop": Remedy((SAME,)),
    "gil-held": Remedy((SAME, CPU)),
    "outside-wait": Remedy((SAME, SAME)),
    "input-starvation": Remedy((SAME, SAME)),
    "out-of-memory": Remedy((HALF,), repeats=True),
    "out-of-memory-kill": Remedy((HALF,), repeats=True),
    "native-crash": Remedy((SAME, SAME, SAME, CPU)),
    "killed": Remedy((SAME,), repeats=True),
    "unknown": Remedy((SAME, SAME)),
    "stopped": Remedy(()),
    "script-error": Remedy(()),
    "silent-exit": Remedy(()),
    "exit-hang": Remedy(()),
    "wrong-numbers": Remedy(()),
}

# docs/detection.md, "What happens after a stall": --on-stall orders one remedy for all stalls.
ORDERS = {
    "restart": Remedy((SAME,), repeats=True),
    "halve": Remedy((HALF,), repeats=True),
    "cpu": Remedy((CPU, SAME), repeats=True),
    "stop": Remedy(()),
}


class Times(NamedTuple):
    """docs/detection.md, "How long a gap can last": seconds in a training step with a known pace."""

    noticed: float
    evidence: float
    acted: float


TIMES = {
    "deadlock": Times(5, 10, 10),  # nothing can wake the threads, or a lock in Python that no other thread can end
    "idle": Times(15, 30, 120),  # a device, a network, a script that sleeps
    "busy device": Times(23, 45, 120),  # one call that waits for a GPU that is busy at an even power, or does nothing
    "spin": Times(60, 120, 120),  # a busy processor that touches no new memory
    "busy": Times(300, 600, 600),  # a busy processor
    "stopped": Times(5, 5, float("inf")),
}
NO_PROGRESS = 2  # restarts in a row without new progress, after which only a step that changes something is taken
MOST_RESTARTS = 10  # within an hour

# README, "Exit codes".
STOPPED_BY_LOSS, GAVE_UP = 65, 124

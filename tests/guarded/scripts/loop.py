"""A loop of its own: STEPS steps of PACE seconds; with an argument it deadlocks once, at a step.

loop.py NAME STEPS PACE [STALL_AT MEMORY]

It computes for a fifth of each step, with BUSY in its environment all the time.
"""

import os
import sys
import threading
import time
from pathlib import Path

import stallguard

BUSY = 1.0 if "BUSY" in os.environ else 0.2


def step(pace):
    """Compute, and wait, for as long as a step takes."""
    end = time.monotonic() + BUSY * pace
    while time.monotonic() < end:
        sum(range(1000))
    time.sleep((1.0 - BUSY) * pace)


def deadlock():
    """Wait for a lock that nobody will let go of."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # the line to be named


def main(name, steps, pace, stall_at="-1", memory=""):
    """Train."""
    for number in range(int(steps)):
        if number == int(stall_at) and not Path(memory).exists():
            Path(memory).write_text(name)
            deadlock()
        step(float(pace))
        stallguard.beat()
    print(name, "trained", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A loop of its own: STEPS steps of PACE seconds, busy or asleep, that deadlocks once at a step if it is told to.

loop.py NAME STEPS PACE [STALL_AT MEMORY]
"""

import sys
import threading
import time
from pathlib import Path

import stallguard


def step(pace):
    """Compute for as long as a step takes."""
    end = time.monotonic() + pace
    while time.monotonic() < end:
        sum(range(1000))


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

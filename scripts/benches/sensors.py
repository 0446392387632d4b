"""`scripts/bench sensors`: what seeing costs: CPU, memory growth and the longest reading of all sensors.

An hour's readings of a tree of 10 processes with 100 threads are taken one after another with a clock that is
moved by hand, two minutes of them as while a stall is suspected; then all sensors run in their threads for half a
minute, so that waking up is paid for too.
"""

from __future__ import annotations

import contextlib
import os
import queue
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.results import Goal, against, concluded
from stallguard.host import system
from stallguard.sensors import Sensor, Target
from stallguard.sensors.log_matcher import Matcher
from stallguard.sensors.sampler import Samplers
from stallguard.sensors.sensor_registry import sensors

HOUR, URGENT, WARM, LIVE = 3600.0, 120.0, 600.0, 30.0  # seconds
CPU, GROWTH, TICK = 0.5, 1.0, 50.0  # goals, at most: % of a core, MB, ms
PROCESSES, THREADS = 10, 100
LINES_A_SECOND = 20  # of a progress bar
BAR = b"\r%4d/1264 [==========>........] - ETA: 12s - loss: 0.4512 - accuracy: 0.8713"

TREE = f"""
import os, threading, time
hold = threading.Event()
for _ in range({PROCESSES - 1}):
    if os.fork() == 0:
        break
for _ in range({THREADS // PROCESSES - 1}):
    threading.Thread(target=hold.wait, daemon=True).start()
print(flush=True)
while True:
    time.sleep(0.5)
"""


class Hands:
    """A clock that the bench moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return the hands' position in seconds."""
        return self.now

    def asleep(self) -> float:
        """Return that this machine never sleeps."""
        return 0.0


class Output:
    """The output's matcher as if it were a sensor: a second of a progress bar at each reading."""

    name, period = "output", 1.0

    def __init__(self) -> None:
        self._matcher, self._line = Matcher(), 0

    def read(self) -> None:
        """Feed a second's lines, each by itself, as a script prints them."""
        for _ in range(LINES_A_SECOND):
            self._line += 1
            self._matcher.feed(BAR % (self._line % 1264), float(self._line))


@contextlib.contextmanager
def tree() -> Iterator[int]:
    """Run a tree of processes with threads and yield the root's pid."""
    child = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None  # noqa: S101
        child.stdout.readline()
        time.sleep(0.5)
        yield child.pid
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


class Spent:
    """What the readings of one sensor cost; 16 bytes each, so that the bench does not measure itself."""

    def __init__(self) -> None:
        self.cpu, self.wall = array("d"), array("d")  # seconds


def take(watched: list[Any], hands: Hands, seconds: float, spent: dict[str, Spent], *, urgent: bool = False) -> None:
    """Take the readings of `seconds` and add what they cost to `spent`.

    CPU is the whole process', so that what a sensor's own threads do is counted.
    """
    due = {one.name: hands.now for one in watched}
    for one in watched:
        if hasattr(one, "hurry"):
            one.hurry(urgent)
    end = hands.now + seconds
    while hands.now < end:
        for one in watched:
            if due[one.name] <= hands.now:
                cpu, wall = time.process_time(), time.perf_counter()
                one.read()
                spent[one.name].cpu.append(time.process_time() - cpu)
                spent[one.name].wall.append(time.perf_counter() - wall)
                due[one.name] += getattr(one, "urgent_period", one.period) if urgent else one.period
        hands.now = min(due.values())


def rss() -> float:
    """Return this process' resident memory in MB; the highest ever where /proc is missing."""
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def row(name: str, spent: Spent) -> tuple[float, float]:
    """Print a sensor's row; return its share of a core in % and its p99 in ms."""
    share, p99 = sum(spent.cpu) / HOUR * 100, sorted(spent.wall)[int(len(spent.wall) * 0.99)] * 1e3
    print(f"{name:10s} {len(spent.wall):8d} {statistics.median(spent.wall) * 1e3:10.2f} {p99:8.2f} {share:9.3f}")
    return share, p99


def hour(root: int, place: Path) -> tuple[float, float, float]:
    """Take an hour's readings; return % of a core, MB grown, and the longest p99 in ms."""
    hands, target = Hands(), Target(root=root, places=(place,))
    watched: list[Any] = [*sensors(target, hands, trouble), Output()]
    spent = {one.name: Spent() for one in watched}
    take(watched, hands, WARM, {one.name: Spent() for one in watched})
    before = rss()
    take(watched, hands, HOUR - URGENT, spent)
    take(watched, hands, URGENT, spent, urgent=True)
    grown = rss() - before
    print(f"{'sensor':10s} {'readings':>8s} {'median ms':>10s} {'p99 ms':>8s} {'% of core':>9s}")
    rows = [row(name, each) for name, each in spent.items()]
    for one in watched:
        if hasattr(one, "close"):
            one.close()
    return sum(share for share, _ in rows), grown, max(p99 for _, p99 in rows)


def live(root: int, place: Path) -> float:
    """Run all sensors in their threads; return % of a core."""
    clock, target = system, Target(root=root, places=(place,))
    mailbox: queue.SimpleQueue[object] = queue.SimpleQueue()
    watched: list[Sensor] = sensors(target, clock, trouble)
    samplers = Samplers(watched, mailbox.put, clock, trouble)
    samplers.start()
    time.sleep(2.0)  # imports and first readings
    begun, cpu = time.monotonic(), time.process_time()
    time.sleep(LIVE)
    used = (time.process_time() - cpu) / (time.monotonic() - begun) * 100
    samplers.close()
    return used


def trouble(name: str, error: Exception) -> None:
    """Report a sensor that failed."""
    print(f"{name} failed: {error}", file=sys.stderr)


def main() -> int:
    """Measure and print; return the exit code."""
    with tempfile.TemporaryDirectory() as place, tree() as root:
        share, grown, p99 = hour(root, Path(place))
        running = live(root, Path(place))
    goals = [
        Goal("all sensors, an hour's readings, % of a core", share, CPU),
        Goal(f"all sensors, {LIVE:.0f} s in their threads, % of a core", running, CPU),
        Goal("growth in that hour, MB", grown, GROWTH),
        Goal("longest p99 of a reading, ms", p99, TICK),
    ]
    print(f"\n{against('', goals)}\n")
    return concluded(goals)


if __name__ == "__main__":
    raise SystemExit(main())

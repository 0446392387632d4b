"""`scripts/bench soak [--minutes N]`: does stallguard stay small for long, and its journal within its bound?

First a week in minutes: its own loop, journal and snapshots, with the time injected (endurance/week.py).  Then a real
run: a program that reports 200 batches a second under `stallguard run` with every sensor, and what the process of
stallguard takes.  `--minutes 145` is the full proof, all but the first 40 minutes; the slope of a shorter one is
scaled to an hour, and too high.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import psutil

from endurance import week
from endurance.week import Reading, read, size_of, slope
from harness.children import guarding, started
from harness.results import Goal, concluded, table
from stallguard.config import Config

MINUTES, DAYS = 5.0, 7.0
# Share of the time, and seconds, that are left out: while all is well a sensor is kept every 15 s, so its 150 readings
# (core/history.py) fill up in 38 minutes, by some 500 KB an hour.  So the slope of a shorter run is an upper bound.
WARM, WARMEST = 0.5, 2400.0
EVERY, LOOKS = 5.0, 12  # seconds between two looks, and how many there are in a short run
GROWTH, CPU, STEADY = (100.0, 0.5, 0.0)  # KB an hour; % of a core; descriptors and threads that are more in the end
WEEK = 2000.0  # KB in the week after its first day
RATE = 200
BEATING = """
import sys, time, stallguard
begin = time.monotonic()
number = 0
while time.monotonic() < begin + float(sys.argv[1]):
    stallguard.beat()
    number += 1
    time.sleep(max(0.0, begin + number / {rate} - time.monotonic()))
"""


def accelerated(days: float) -> list[Goal]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sg-soak-") as folder:
        code, seen = week.live(Path(folder), days)
        journal = size_of(Path(folder) / "journal.jsonl")
    print(f"{days:g} days in {time.monotonic() - began:.0f} s, exit code {code}")
    shown = seen[:: max(1, len(seen) // 8)]
    head = ("hour", "resident MB", "journal MB", "saved state KB", "status KB")
    print(
        table(
            head,
            [
                (
                    f"{one.hours:.0f}", f"{one.memory / 1e6:.2f}", f"{one.journal / 1e6:.2f}",
                    f"{one.snapshot / 1e3:.1f}", f"{one.status / 1e3:.1f}",
                )
                for one in shown
            ],
        )
    )  # fmt: skip
    after = [(one.hours, one.memory / 1e3) for one in seen[len(seen) // 7 :]]
    grown = slope(after) * (after[-1][0] - after[0][0])
    largest = max(journal, *(one.journal for one in seen))
    return [
        Goal("KB that the loop grew after the first seventh", round(grown), WEEK),
        Goal("MB of journal", round(largest / 1e6, 2), week.BOUND / 1e6),
        Goal("exit code of the run that lived a week", code, 0),
    ]


def watched(minutes: float) -> list[Reading]:
    found, every = list[Reading](), min(EVERY, minutes * 60 / LOOKS)
    with tempfile.TemporaryDirectory(prefix="sg-soak-") as folder:
        home, script = Path(folder) / "home", Path(folder) / "beating.py"
        script.write_text(BEATING.format(rate=RATE))
        with started(guarding(str(script), str(minutes * 60)), home, Path(folder)) as guard:
            process, began = psutil.Process(guard.pid), time.monotonic()
            end = began + minutes * 60 - every
            try:
                while (now := time.monotonic()) < end and guard.poll() is None:
                    found.append(read(process, home / "runs" / "latest" / "journal.jsonl", now - began))
                    if len(found) % 60 == 0:
                        print(
                            f"{found[-1].at / 60:.0f} of {minutes:g} minutes, {found[-1].memory / 1e6:.2f} MB",
                            file=sys.stderr,
                            flush=True,
                        )
                    time.sleep(every)
                if guard.wait(60):
                    sys.exit(f"bench soak: stallguard ended with {guard.returncode}")
            except BaseException:
                guard.terminate()
                raise
    return found


def real(minutes: float) -> list[Goal]:
    found = watched(minutes)
    warm = min(WARM * minutes * 60, WARMEST)
    steady = [one for one in found if one.at >= warm]
    first, last = steady[0], steady[-1]
    hours = (last.at - first.at) / 3600
    growth = slope([(one.at / 3600, one.memory / 1e3) for one in steady])
    used = (last.cpu - first.cpu) / (last.at - first.at) * 100
    scaled = "" if hours >= 0.8 else f", scaled from {hours * 60:.0f} minutes"
    print(
        f"\n{minutes:g} minutes at {RATE} beats/s, the first {warm / 60:.1f} left out: {last.memory / 1e6:.2f} MB "
        f"resident, {growth:+.0f} KB an hour{scaled}; {used:.3f} % of a core; {last.files} descriptors and "
        f"{last.threads} threads, {first.files} and {first.threads} before; {last.journal / 1e6:.2f} MB of journal"
    )
    return [
        Goal("KB an hour", round(growth, 1), GROWTH),
        Goal("% of a core", round(used, 3), CPU),
        Goal("more descriptors", last.files - first.files, STEADY),
        Goal("more threads", last.threads - first.threads, STEADY),
        Goal("MB of the real journal", last.journal / 1e6, Config().keep.journal / 1e6),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench soak")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of the real run; 0: leave it out")
    parser.add_argument("--days", type=float, default=DAYS, help="of the accelerated run; 0: leave it out")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has been compiled
    goals = accelerated(options.days) if options.days else []
    goals += real(options.minutes) if options.minutes else []
    return concluded(goals)


if __name__ == "__main__":
    sys.exit(main())

"""`scripts/bench output`: how fast a script's output is carried while it is searched for errors, and if it is whole.

A child writes a pattern for ten seconds as fast as it can, through an Output with the real matcher, to a reader in a
third process that compares each byte.  Beside it: the same without a matcher, and a plain pipe without stallguard.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness.results import Goal, concluded
from stallguard.core.events import Event, ProbeNote
from stallguard.sensors.log_matcher import Matcher
from stallguard.supervisor.output import Matching, OutputCarrier
from stallguard.supervisor.output_log import OutputLog
from stallguard.supervisor.terminal_lines import Streams

SECONDS = 10.0
GOAL = 300.0  # MB/s, at least, with the matcher on
# Of what a plain pipe carries: that of the machine on which GOAL was set; others are slower, or shared.
SHARE = 300 / 962
MB = 1e6

WRITER = """
import os, sys, time
line = b"%07d/9999999 [==========>........] - ETA: 12s - loss: 0.4512 - accuracy: 0.871\\n"
chunk = b"".join(line % number for number in range(800))
until, count = time.monotonic() + float(sys.argv[1]), 0
while time.monotonic() < until:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(1, rest):]
    count += len(chunk)
print(count, file=sys.stderr)
"""
READER = """
import os, sys
line = b"%07d/9999999 [==========>........] - ETA: 12s - loss: 0.4512 - accuracy: 0.871\\n"
chunk = b"".join(line % number for number in range(800))
pattern, count, wrong, buffer = memoryview(chunk * 3), 0, 0, bytearray(1 << 16)
while size := os.readv(0, [buffer]):
    offset = count % len(chunk)
    wrong += memoryview(buffer)[:size] != pattern[offset:offset + size]
    count += size
print(count, wrong)
"""


def carried(seconds: float, *, through: bool, search: bool) -> tuple[float, int, list[str]]:
    """Return MB/s, how many bytes are missing or differ (in chunks), and what was said.

    `through`: an Output carries; `search`: it is searched too.
    """
    said: list[str] = []
    ours, theirs = os.pipe()
    reader = subprocess.Popen([sys.executable, "-c", READER], stdin=ours, stdout=subprocess.PIPE)
    os.close(ours)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        output = _output(Path(place), theirs, said, search=search) if through else None
        writer = subprocess.run(
            [sys.executable, "-c", WRITER, str(seconds)], stdout=output.stdout if output else theirs,
            stderr=subprocess.PIPE, check=True,
        )  # fmt: skip
        if output:
            output.settle(60)
            output.finish(60)
        os.close(theirs)
    count, wrong = map(int, reader.communicate()[0].split())
    return count / MB / (time.monotonic() - began), abs(int(writer.stderr) - count) + wrong, said


def _output(place: Path, target: int, said: list[str], *, search: bool) -> OutputCarrier:
    def post(event: Event) -> None:
        said.append(event.text if isinstance(event, ProbeNote) else repr(event))

    matching = Matching(post, time.monotonic, lambda: 1)
    matching.begin(Matcher())
    log = OutputLog(place / "output.log", said.append, 16 << 20)
    streams = Streams("pipe", "none")
    return OutputCarrier(streams, log, said.append, matching.feed if search else None, (target, target))


def main() -> int:
    """Measure and print; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=SECONDS)
    seconds = options.parse_args().seconds
    rates = []
    for name, through, search in (("plain pipe", False, False), ("no matcher", True, False), ("matcher", True, True)):
        rate, wrong, said = carried(seconds, through=through, search=search)
        rates.append((rate, wrong))
        print(f"{name:12s} {rate:8.1f} MB/s   {'bytes equal' if not wrong else f'{wrong} WRONG'}", *said, sep="   ")
    plain, rate = rates[0][0], rates[-1][0]
    goals = [
        Goal("MB/s that are wanted, for each that is carried with the matcher", min(GOAL, SHARE * plain) / rate, 1),
        Goal("bytes that are missing or differ", sum(wrong for _, wrong in rates), 0),
    ]
    return concluded(goals, f"\n{GOAL:g} MB/s, or {SHARE:.0%} of a plain pipe, are wanted; {rate / plain:.0%}; ")


if __name__ == "__main__":
    raise SystemExit(main())

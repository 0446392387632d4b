"""`scripts/bench overhead`: what the guard costs, as ratios and differences within one run.

Measures the CPU that the hooks add to a step of a real `fit`, the slow-down of a `fit` with 1 ms batches, the
time from `stallguard run` to the child's first line, the supervisor's memory and CPU at 200 beats a second, and how
fast output is carried while it is searched for errors (beside it: not searched, and a plain pipe), and if it is whole.
Each figure of a step is the median of several processes; the range beside it says how far these lie apart.  A long
fit has 10,000 steps.  The rows without a goal inform: how overhead_child.py measures, and what they are for, stands
there.
Interpreters: this one for Keras 3; STALLGUARD_PYTHON_KERAS2 or .venvs/keras2 for Keras 2.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.children import BENCHES, ROOT, environment, guarding, other_python, started
from harness.results import Goal, concluded, table
from stallguard.core.events import Event, ProbeNote
from stallguard.sensors.log_matcher import Matcher
from stallguard.supervisor.output import Matching, OutputCarrier
from stallguard.supervisor.output_log import OutputLog
from stallguard.supervisor.terminal_lines import Streams

STARTS = 25
PROCESSES, ROUNDS = 5, 15  # for each figure of a step, and in each
BEATS_FOR = 20.0  # seconds
SECONDS = 10.0  # of output
# MB/s of output that is searched, at least; or this share of what a plain pipe carries: that of the machine on which
# the figure was set.  Others are slower, or shared.
OUTPUT, OUTPUT_SHARE = 300.0, 300 / 962
MB = 1e6
BEATS_PER_SECOND = 200

# Goals, at most.
STEP_CPU, SLOW_DOWN, START, MEMORY, CPU = 10.0, 0.5, 80.0, 35.0, 0.5
CALLS = 1.5  # Python calls a step: the one that the stopwatch sees, and some in a few steps of a hundred

BEATING = f"""
import time, stallguard
end = time.monotonic() + {BEATS_FOR}
while time.monotonic() < end:
    stallguard.beat()
    time.sleep({1 / BEATS_PER_SECOND})
"""


class Row(NamedTuple):
    """One line of the table; without a goal it only informs."""

    what: str
    values: list[float]  # one a process; empty: could not be measured here
    goal: float | None  # at most

    @property
    def value(self) -> float:
        """The median; not a number, which holds no goal, if it could not be looked at."""
        return statistics.median(self.values) if self.values else math.nan

    def cells(self) -> tuple[str, ...]:
        spread = f"{min(self.values):.1f} to {max(self.values):.1f}" if len(self.values) > 1 else ""
        return (self.what, f"{self.value:.2f}", "" if self.goal is None else f"{self.goal:g}", spread)


def step_cost(python: str, *options: str) -> dict[str, float] | None:
    done = subprocess.run(
        [python, str(BENCHES / "overhead_child.py"), *options], capture_output=True, text=True, check=False, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.stderr.write(done.stderr[-2000:])
        return None
    found: dict[str, float] = json.loads(lines[-1])
    return found


def step_rows(processes: int, rounds: int) -> list[Row]:
    """Return the rows about a `fit`; the kinds take turns, so that a loud minute falls on all of them."""
    kinds = [
        (name, python, options)
        for name, python in (("Keras 3", sys.executable), ("Keras 2", other_python("keras2")))
        for options in ((), ("--checkpoints",))
    ]
    found: dict[int, list[dict[str, float]]] = {number: [] for number in range(len(kinds))}
    for _ in range(processes):
        for number, (_, python, options) in enumerate(kinds):
            one = step_cost(python, "--rounds", str(rounds), *options) if python else None
            found[number] += [one] if one else []
    return [row for number, kind in enumerate(kinds) for row in _rows(kind[0], bool(kind[2]), found[number])]


def _rows(name: str, checkpoints: bool, found: list[dict[str, float]]) -> list[Row]:
    where = f"{name}, checkpoints on" if checkpoints else name
    # What a fit costs once with checkpoints, 4 ms, is compared with a long fit: one of 400 steps is over in 0.4 s.
    short = (None, None) if checkpoints else (STEP_CPU, SLOW_DOWN)
    figures = (
        (f"CPU a step of a long fit, {where}, us", "long_step_us", STEP_CPU),
        ("  slow-down of 1 ms batches, %", "long_slowdown_percent", SLOW_DOWN),
        ("  CPU a step of a fit of 400 steps, us", "step_us", short[0]),
        ("  slow-down of 1 ms batches then, %", "slowdown_percent", short[1]),
        ("  calls of Python functions a step", "calls", CALLS),
        ("  once a fit (its share is in the step), us", "fit_us", None),
        ("  once an epoch (the same), us", "epoch_us", None),
    )
    return [Row(what, [one[name] for one in found], goal) for what, name, goal in figures]


def first_line(command: list[str], env: dict[str, str]) -> float:
    """Return milliseconds from the start of `command` to its first byte on standard output."""
    began = time.perf_counter()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None  # noqa: S101
        child.stdout.read(1)
        took = time.perf_counter() - began
        child.stdout.read()
    return took * 1000


def start_cost(home: Path) -> list[float]:
    """Return the differences, in milliseconds, of interleaved pairs."""
    script = home / "hello.py"
    script.write_text("print('x', flush=True)\n")
    plain = [sys.executable, str(script)]
    under = guarding(str(script))
    env = environment(home)
    first_line(under, env), first_line(plain, env)
    return [first_line(under, env) - first_line(plain, env) for _ in range(STARTS)]


def supervisor_cost(home: Path) -> tuple[float, float]:
    """Return the supervisor's resident megabytes, and its CPU in percent of a core, at 200 beats a second."""
    script = home / "beating.py"
    script.write_text(BEATING)
    with started(guarding(str(script)), home) as child:
        supervisor = psutil.Process(child.pid)
        time.sleep(4)
        begin, memory = _cpu(supervisor), 0.0
        watched = BEATS_FOR - 7
        for _ in range(10):
            time.sleep(watched / 10)
            memory = max(memory, supervisor.memory_info().rss / 1e6)
        used = (_cpu(supervisor) - begin) / watched * 100
        child.wait()
    return memory, used


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


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


def output_rows(seconds: float) -> tuple[list[Row], int]:
    """Return the rows about what a script prints, and the bytes that are missing or differ."""
    found = [
        carried(seconds, through=through, search=search)
        for through, search in ((False, False), (True, False), (True, True))
    ]
    plain, unsearched, searched = (rate for rate, *_ in found)
    wanted = min(OUTPUT, OUTPUT_SHARE * plain)
    rows = [
        Row("output through a plain pipe, MB/s", [plain], None),
        Row("  through stallguard, not searched", [unsearched], None),
        Row("  searched for errors", [searched], None),
        Row("  MB/s that are wanted, for each of these", [wanted / searched], 1.0),
    ]
    return rows, sum(wrong for _, wrong, _ in found)


def main() -> int:
    parser = argparse.ArgumentParser(description="what the guard costs")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="for each figure of a step")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has been compiled
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of fits in each")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of output")
    asked = parser.parse_args()
    rows = step_rows(asked.processes, asked.rounds)
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as place:
        rows.append(Row("start to first line, added, ms", start_cost(Path(place)), START))
        memory, used = supervisor_cost(Path(place))
    more, wrong = output_rows(asked.seconds)
    rows += more
    rows.append(Row("supervisor resident, MB", [memory], MEMORY))
    rows.append(Row(f"supervisor CPU at {BEATS_PER_SECOND} beats/s, % of a core", [used], CPU))
    print(table(("added by the guard", "measured", "at most", "range"), [row.cells() for row in rows]) + "\n")
    goals = [Goal(row.what.strip(), row.value, row.goal) for row in rows if row.goal is not None]
    return concluded([*goals, Goal("bytes of output that are missing or differ", wrong, 0)])


if __name__ == "__main__":
    sys.exit(main())

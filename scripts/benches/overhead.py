"""`scripts/bench overhead`: what the guard costs, as ratios and differences within one run.

Measures the CPU that the hooks add to a step of a real `fit`, the slow-down of a `fit` with 1 ms batches, the
time from `stallguard run` to the child's first line, and the supervisor's memory and CPU at 200 beats a second.
Interpreters: this one for Keras 3; STALLGUARD_PYTHON_KERAS2 or .venvs/keras2 for Keras 2.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
STARTS = 15
BEATS_FOR = 20.0  # seconds
BEATS_PER_SECOND = 200

# (name, unit, goal: at most)
STEP_CPU, SLOW_DOWN, START, MEMORY, CPU = 10.0, 0.5, 150.0, 45.0, 0.5

BEATING = f"""
import time, stallguard
end = time.monotonic() + {BEATS_FOR}
while time.monotonic() < end:
    stallguard.beat()
    time.sleep({1 / BEATS_PER_SECOND})
"""


def guarded(home: Path, *command: str) -> list[str]:
    """Return the command line that guards `command`, keeping its runs in `home`."""
    os.environ["STALLGUARD_HOME"] = str(home)
    return [sys.executable, "-m", "stallguard", "run", "--quiet", "--python", sys.executable, "--", *command]


def step_cost(python: str, *options: str) -> dict[str, float] | None:
    """Return the child's measurements for one interpreter, or None where it has no TensorFlow."""
    child = ROOT / "scripts" / "benches" / "overhead_child.py"
    done = subprocess.run(
        [python, str(child), *options], capture_output=True, text=True, check=False, cwd=ROOT
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.stderr.write(done.stderr[-2000:])
        return None
    found: dict[str, float] = json.loads(lines[-1])
    return found


def first_line(command: list[str]) -> float:
    """Return milliseconds from the start of `command` to its first byte on standard output."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None  # noqa: S101
        child.stdout.read(1)
        took = time.perf_counter() - began
        child.stdout.read()
    return took * 1000


def start_cost(home: Path) -> float:
    """Return the median difference, in milliseconds, of interleaved pairs."""
    script = home / "hello.py"
    script.write_text("print('x', flush=True)\n")
    plain = [sys.executable, str(script)]
    under = guarded(home, str(script))
    first_line(under), first_line(plain)
    return statistics.median(first_line(under) - first_line(plain) for _ in range(STARTS))


def supervisor_cost(home: Path) -> tuple[float, float]:
    """Return the supervisor's resident megabytes, and its CPU in percent of a core, at 200 beats a second."""
    script = home / "beating.py"
    script.write_text(BEATING)
    with subprocess.Popen(guarded(home, str(script))) as child:
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


def keras2() -> str | None:
    """Return the interpreter of the Keras 2 environment, if there is one."""
    named = os.environ.get("STALLGUARD_PYTHON_KERAS2") or str(ROOT / ".venvs" / "keras2" / "bin" / "python")
    return named if Path(named).exists() else None


def main() -> int:
    """Measure, print a table, and say whether the goals hold."""
    rows: list[tuple[str, float | None, float, str]] = []
    for name, python in (("Keras 3", sys.executable), ("Keras 2", keras2())):
        found = step_cost(python) if python else {}
        rows.append((f"CPU per step added, {name}", (found or {}).get("step_us"), STEP_CPU, "us"))
        rows.append(
            (f"slow-down of 1 ms batches, {name}", (found or {}).get("slowdown_percent"), SLOW_DOWN, "%")
        )
        saving = step_cost(python, "--checkpoints") if python else {}
        rows.append((f"the same CPU, checkpoints on, {name}", (saving or {}).get("step_us"), STEP_CPU, "us"))
    with tempfile.TemporaryDirectory(prefix="sg-bench-") as place:
        rows.append(("start to first line, added", start_cost(Path(place)), START, "ms"))
        memory, used = supervisor_cost(Path(place))
    rows.append(("supervisor resident", memory, MEMORY, "MB"))
    rows.append((f"supervisor CPU at {BEATS_PER_SECOND} beats/s", used, CPU, "% of a core"))
    print(f"{'what':<38}{'measured':>12}{'goal':>10}")
    for what, value, goal, unit in rows:
        shown = "not here" if value is None else f"{value:.2f}"
        print(f"{what:<38}{shown:>12}{'<= ' + format(goal, 'g'):>10} {unit}")
    missed = [what for what, value, goal, _ in rows if value is None or value > goal]
    print("goals hold" if not missed else f"goals missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

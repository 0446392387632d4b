"""`scripts/bench causes [RUNS]`: is each cause that Linux can really produce named rightly?

Starts children that go wrong, each under a real `stallguard run`, reads the findings from the run's journal, and
prints which cause was named first.  The detector's patience is shortened, so that a run takes seconds; the
diagnosis is as shipped.  RUNS (5): how often each; a second argument names the only case to run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import msgspec

from harness.children import BENCHES, ended, guarding, started, until
from stallguard.core import history
from stallguard.core.actions import AnyAction, Diagnosed
from stallguard.core.detection import detector
from stallguard.core.diagnosis import causes, diagnose
from stallguard.core.events import Heartbeat
from stallguard.core.limits import DetectorLimits
from stallguard.storage import journal

CHILD = BENCHES / "causes_child.py"
RUNS, LONGEST = 5, 150.0  # seconds that a run may take
GROUPS = Path("/sys/fs/cgroup/memory")  # version 1; version 2 has its files one level higher
LIMIT = 300_000_000  # bytes
HEALTHY, CROWDED = 30.0, 90.0  # seconds of a training before, and at most while, others take the cores
NOTHING = "nothing"

# Patience in seconds.  Only how soon a stall is called depends on it, not what it is called.
PATIENCE = {"deadlock": 8, "external": 8, "spin": 10, "working": 60}
ROWS = ("step", "epoch_first_step", "batch_callbacks", "exit", "unclassified", "idle", "importing")
SLOWDOWN = {"slow_window": 2, "slow_steps": 8, "slow_least": 8, "slow_windows": 3}


class Case(NamedTuple):
    """One way to go wrong.  `expected`: the cause, or the causes that are the same here."""

    kind: str
    expected: str
    needs_group: bool = False
    crowded: bool = False
    patient: bool = False  # its silence is not a stall yet


CASES = (
    Case("stopped", causes.STOPPED),
    Case("gil", causes.GIL_HELD),
    Case("busy", causes.BUSY_LOOP),
    Case("deadlock", causes.HOST_DEADLOCK),
    Case("callback_lock", causes.HOST_DEADLOCK),
    Case("blocked_op", causes.DEVICE_WAIT),
    Case("blocked_generator", causes.INPUT_STARVATION),
    Case("outside", causes.OUTSIDE_WAIT),
    Case("limit", causes.OUT_OF_MEMORY),
    Case("oom", causes.OUT_OF_MEMORY_KILL, needs_group=True),
    Case("neighbour", causes.THROTTLED, crowded=True),
    Case("exception", causes.SCRIPT_ERROR),
    Case("segfault", causes.NATIVE_CRASH),
    Case("killed", causes.KILLED),
    Case("silent_exit", causes.SILENT_EXIT, patient=True),
    Case("exit_hang", causes.EXIT_HANG),
)


def settings(case: Case) -> list[str]:
    """Return the options that shorten the patience, and end a run at its first finding."""
    rows = {f"detector.rows.{row}.{key}": f"{seconds}s" for row in ROWS
            for name, seconds in PATIENCE.items() for key in (name, f"prior_{name}")}  # fmt: skip
    slow = {f"detector.{name}": str(value) for name, value in SLOWDOWN.items()}
    fixed = {
        "detector.act_after": "1s", "detector.learning": "8s", "policy.on_stall": "stop", "policy.max_restarts": "0",
        "policy.causes": "stopped=stop", "checkpoint.enabled": "off", "notify.desktop": "off",
    }  # fmt: skip
    return [
        word
        for name, value in (({} if case.patient else rows) | slow | fixed).items()
        for word in ("--set", f"{name}={value}")
    ]


def run(case: Case, home: Path, group: Path | None) -> str:
    """Return the cause that is named first for one run of `case`; "nothing" if there is none."""
    argument = [str(group)] if case.needs_group else []
    with started(guarding(str(CHILD), case.kind, *argument, options=settings(case)), home) as guard:
        if case.crowded:
            crowd(guard, home)
        ended(guard, LONGEST)
    return named(home)


def crowd(guard: subprocess.Popen[bytes], home: Path) -> None:
    """Let other processes take the cores of a training that has found its pace, then end the run."""
    path = home / "runs" / "latest" / "journal.jsonl"
    until(lambda: trains(path), LONGEST, 2.0)
    time.sleep(HEALTHY)
    burn = [sys.executable, "-c", "while True: pass"]
    burners = [subprocess.Popen(burn) for _ in range(12 * (os.cpu_count() or 1))]
    until(lambda: implied(path) != NOTHING, CROWDED, 2.0)
    for burner in burners:
        burner.kill()
        burner.wait()
    guard.send_signal(signal.SIGTERM)


def trains(path: Path) -> bool:
    """Return whether a batch has ended in the run whose journal this is."""
    return path.exists() and any(isinstance(event, Heartbeat) and event.beats for event in journal.events(path))


def named(home: Path) -> str:
    """Return the cause that the newest journal names first; for a training that is only slow, the one it implies."""
    path = home / "runs" / "latest" / "journal.jsonl"
    for entry in journal.read(path):
        is_diagnosis = entry.line.event == "incident.diagnosed"
        action = msgspec.json.decode(entry.raw, type=AnyAction) if is_diagnosis else None
        if isinstance(action, Diagnosed) and action.findings:
            return action.findings[0].cause
    return implied(path)


def implied(path: Path) -> str:
    """Return the likeliest cause at any time of a journal in which nothing stalled."""
    limits = msgspec.convert(SLOWDOWN, DetectorLimits)
    story, detector_state, best = history.History(), detector.start(limits), (NOTHING, 0.0)
    for event in journal.events(path):
        story, detector_state = (history.remember(story, event), detector.observe(detector_state, event, limits))
        if detector_state.judgement.slow > 1.0:
            first = diagnose.diagnose(story, detector_state.judgement, event.at)[0]
            best = max(best, (first.cause, first.confidence), key=lambda seen: seen[1])
    return best[0]


@contextlib.contextmanager
def memory_group() -> Iterator[Path | None]:
    """Yield a control group with little memory, None if none can be made."""
    place = GROUPS / f"stallguard-bench-{os.getpid()}"
    try:
        place.mkdir()
        (place / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError:
        yield None
        return
    try:
        yield place
    finally:
        place.rmdir()


def main() -> int:
    """Run every case, print the table, and say whether every run was named rightly."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    wanted = [case for case in CASES if len(sys.argv) < 3 or case.kind in sys.argv[2:]]
    right = total = 0
    print(f"{'child':<20}{'expected':<22}{'right':>7}   named")
    for case in wanted:
        with tempfile.TemporaryDirectory(prefix="sg-bench-") as home, memory_group() as group:
            if case.needs_group and group is None:
                print(f"{case.kind:<20}{case.expected:<22}{'-':>7}   no control group can be made here")
                continue
            found = Counter(run(case, Path(home), group) for _ in range(runs))
        right, total = right + found[case.expected], total + runs
        causes = ", ".join(f"{cause} {times}" for cause, times in found.most_common())
        print(f"{case.kind:<20}{case.expected:<22}{found[case.expected]:>3}/{runs:<3}   {causes}", flush=True)
    print(f"{right} of {total} named rightly: the goal {'holds' if right == total else 'is missed'}")
    return 0 if right == total else 1


if __name__ == "__main__":
    sys.exit(main())

"""The proof that each row looks: its guard is taken out of a copy of stallguard, and its promise must be broken then.

Each fault is made in a child process on a copy of its own, with a limit of time: without its guard stallguard can hang.
What the child and its stage started is ended then, and the guard counts as noticed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.results import Goal, concluded

from .fault import Fault
from .stage import LONGEST, Stage, expect, living


class Change(NamedTuple):
    """A change of the product that takes a guard out.

    `file`: below `stallguard/`; `old` occurs in it exactly once; `new` takes its place.
    """

    file: str
    old: str
    new: str


def guards(text: str) -> dict[str, tuple[Change, ...]]:
    """Return the changes by the name of the fault.  Raises ValueError for a line that is none."""
    found: dict[str, tuple[Change, ...]] = {}
    names: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            file, _, rest = line[4:].partition(": ")
            old, new = (part.replace("\\n", "\n") for part in rest.split(" => "))
            change = Change(file, old, "" if new == "(nothing)" else new)
            found |= {name: (*found.get(name, ()), change) for name in names}
        elif line and not line.startswith("#"):
            names = line.split(", ")
    return found


GUARDS = guards(Path(__file__).with_name("guards.txt").read_text("utf-8"))
NO_GUARD: dict[str, str] = {
    "supervisor-killed-at-start": "each run has a directory of its own, and no run waits for what another one left",
    "disk-slow": "neither the training nor the thread that carries its output writes what is slow here",
    "directory-deleted": "nothing in a run asks for the working directory after the start of the training",
    "own-hooks-of-the-end": "the probe replaces none of these hooks",
    "thousand-children": "the kernel keeps what the training does not wait for, and stallguard waits for none of it",
    "no-temporary-directory": "a run writes into its own directory, and Python itself finds another temporary one",
}


ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "scripts" / "benches" / "chaos_child.py"
LIMIT = 60.0  # seconds for a row
LONG_LIMIT = 240.0  # for a row that is too long for the test suite
WAITED = "20"  # seconds that a check waits for what is promised, so that a row ends before its limit
TIDYING = 15.0  # seconds for a child to end its stage
# Prints which stallguard runs: that of the supervisor, of the probe's directory, and of the training.
WHICH = """
import os, stallguard
stallguard.beat()
print(stallguard.__file__, os.environ["PYTHONPATH"].split(os.pathsep)[0], sep="\\n")
"""


class Removal(NamedTuple):
    """What became of a fault without its guard.  `noticed`: None if the fault cannot be made, or has no guard."""

    fault: Fault
    guard: str
    seen: str
    noticed: bool | None


def changed_copy(place: Path, changes: Sequence[Change]) -> Path:
    """Copy stallguard into `place` and make the changes; return the directory to import it from."""
    shutil.copytree(ROOT / "stallguard", place / "stallguard")
    for change in changes:
        file = place / "stallguard" / change.file
        text = file.read_text()
        expect(text.count(change.old) == 1, f"{change.file} does not have {change.old!r} once")
        file.write_text(text.replace(change.old, change.new))
    return place


def check_copy(folder: Path) -> None:
    """Raise Broken unless a copy is what runs: as the command, as the probe and in the training."""
    mark = Change(
        "cli/__init__.py", "    _prefer_own_packages()\n", "    _prefer_own_packages(), print(__file__, flush=True)\n"
    )
    place = changed_copy(folder / "p", (mark,))
    with Stage(folder / "s", place) as stage:
        ended = stage.guard(stage.script(WHICH)).ended()
    package = place / "stallguard"
    wanted = [str(package / name) for name in ("cli/__init__.py", "__init__.py", "probe/inject")]
    expect(ended.lines == wanted, f"not the copy runs, but {ended.lines} {ended.err}")


def removed(fault: Fault) -> Removal:
    """Make a fault without its guard; return what was seen."""
    missing = fault.needs()
    changes = GUARDS.get(fault.name)
    if missing or changes is None:
        return Removal(fault, "", f"not made: {missing}" if missing else f"no guard: {NO_GUARD.get(fault.name)}", None)
    words = "; ".join(f"{one.file}: {' '.join(one.old.split())[:70]}" for one in changes)
    with _folder() as folder:
        package = changed_copy(folder / "p", changes)
        seen, ok = limited(fault, folder / "s", package, LIMIT if fault.quick else LONG_LIMIT)
    return Removal(fault, words, seen, not ok)


def main(faults: Sequence[Fault]) -> int:
    began, results = time.monotonic(), []
    with _folder() as folder:
        check_copy(folder)
    for number, fault in enumerate(faults, 1):
        results.append(result := removed(fault))
        words = {True: "noticed", False: "NOT NOTICED", None: "-"}[result.noticed]
        print(
            f"{number}/{len(faults)} {fault.name}: {words}, without {result.guard or 'a guard'}: {result.seen[:300]}",
            flush=True,
        )
    missed = [one.fault.name for one in results if one.noticed is False]
    tried = [one for one in results if one.noticed is not None]
    words = f"not noticed: {', '.join(missed)}; " if missed else ""
    before = f"\n{len(tried)} guards were removed, {time.monotonic() - began:.0f} s; {words}"
    return concluded([Goal("removed guards that no row noticed", len(missed), 0)], before)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a directory with a short path, for those of sockets, and remove it after the block."""
    folder = Path(tempfile.mkdtemp(prefix="sgc-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def limited(fault: Fault, folder: Path, package: Path, limit: float) -> tuple[str, bool]:
    """Make the fault in a child; return what it saw, and whether the promise was kept.  `limit`: seconds."""
    process = subprocess.Popen(
        [sys.executable, CHILD, fault.name, folder, package],
        env={**os.environ, LONGEST: WAITED},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        return f"no end within {limit:.0f} s", False
    finally:
        end(process, folder)
    if process.returncode != 0:  # nothing is known of the row
        return f"the child itself failed: {errors.decode()[-600:]}", True
    seen, ok = json.loads(out.splitlines()[-1])
    return seen, ok


def end(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End a child with its group, what its stage started, and the small disks that it mounted."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=TIDYING)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    until = time.monotonic() + TIDYING
    while (left := living(folder)) and time.monotonic() < until:
        for one in left:
            with contextlib.suppress(psutil.Error):
                one.kill()
        time.sleep(0.05)
    process.communicate()
    for place in [one.mountpoint for one in psutil.disk_partitions(all=True)][::-1]:
        if Path(place).is_relative_to(folder):
            subprocess.run(["umount", "-l", place], check=False)

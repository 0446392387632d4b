"""What a storm left: how soon each fault was recovered from, which batches were trained, what differs, what remains."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from stallguard.storage import journal
from stallguard.storage.paths import RunDir

from .place import Place
from .play import Played

PUBLISHED = ("batches.csv", "history.csv", "end.json")
OF_TENSORFLOW = ("__autograph_generated_file", "__pycache__")  # a TensorFlow that is killed leaves them
# Names under which stallguard writes before it renames.
DRAFT = re.compile(r"^(tmp-.*|.*\.tmp|\..*\.\d+|\..*\.gz|.*~)$")


class Trained(NamedTuple):
    """A batch that was trained, in any attempt."""

    time: float
    pid: int
    epoch: int
    batch: int


class Notes(NamedTuple):
    """What the script noted: its batches, and when it carried an order out: (what, when)."""

    batches: list[Trained]
    halts: list[tuple[str, float]]


def notes(orders: Path) -> Notes:
    path, found = orders / "trained.jsonl", Notes([], [])
    for line in path.read_bytes().splitlines() if path.exists() else ():
        row = json.loads(line)
        if "halt" in row:
            found.halts.append((row["halt"], row["time"]))
        else:
            found.batches.append(Trained(row["time"], row["pid"], row["epoch"], row["batch"]))
    return found


def news(batches: Sequence[Trained]) -> list[float]:
    """Return when each batch was trained for the first time, in order."""
    seen, found = set[tuple[int, int]](), []
    for one in batches:
        if (one.epoch, one.batch) not in seen:
            seen.add((one.epoch, one.batch))
            found.append(one.time)
    return found


def again(batches: Sequence[Trained]) -> int:
    """Return how many batches were trained that had been trained before."""
    return len(batches) - len({(one.epoch, one.batch) for one in batches})


def is_alone(batches: Sequence[Trained]) -> bool:
    """Return whether no two processes trained at the same time."""
    spans: dict[int, tuple[float, float]] = {}
    for one in batches:
        first, _ = spans.get(one.pid, (one.time, 0.0))
        spans[one.pid] = (first, one.time)
    ordered = sorted(spans.values())
    return all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))


def begun(played: Sequence[Played], halts: Sequence[tuple[str, float]]) -> list[Played]:
    """Return the faults that took place, with the time at which they did.

    A halt takes place when the script carries it out; one that it never did is left out.
    """
    waiting = {kind: [at for halt, at in halts if halt == kind] for kind, _ in halts}
    found = []
    for one in played:
        if one.kind in ("deadlock", "blocked"):
            times = waiting.get(one.kind)
            if not times:
                continue
            found.append(one._replace(at=times.pop(0)))
        else:
            found.append(one)
    return found


def recoveries(
    faults: Sequence[Played], trained: Sequence[float], supervised: Sequence[float], end: float
) -> list[float]:
    """Return the seconds from each fault to the next new batch; infinite for one after which none came.

    `trained`: when new batches were trained; `supervised`: when a later stallguard had taken the run up, for which a
    kill of stallguard waits as well; `end`: when the run was over in good order (infinite: never), which ends any wait.
    """
    found = []
    for one in faults:
        after = min((at for at in trained if at > one.at), default=math.inf)
        if one.kind == "supervisor":
            after = max(after, min((at for at in supervised if at > one.at), default=math.inf))
        found.append(min(after, end) - one.at)
    return found


def supervised(run: RunDir) -> list[float]:
    """Return when a later stallguard took the run up."""
    return [entry.line.clock for entry in journal.read(run.journal) if entry.line.event == "run.taken_over"]


def own_errors(run: RunDir) -> list[str]:
    """Return the errors of stallguard itself that the journal has."""
    return [entry.line.message for entry in journal.read(run.journal) if entry.line.event == "stallguard.failed"]


def differences(plain: Path, stormed: Path) -> list[str]:
    """Return how what a script published differs from what the undisturbed one did."""
    found = []
    for name in PUBLISHED:
        one, other = plain / name, stormed / name
        if not other.exists():
            found.append(f"{name} is missing")
        elif one.read_bytes() != other.read_bytes():
            found.append(f"{name} differs: {_first_difference(one, other)}")
    return found


def _first_difference(one: Path, other: Path) -> str:
    if one.suffix == ".json":
        first, second = json.loads(one.read_text()), json.loads(other.read_text())
        return ", ".join(sorted(name for name in first.keys() | second if first.get(name) != second.get(name)))
    lines = one.read_text().splitlines(), other.read_text().splitlines()
    for number, pair in enumerate(zip(*lines, strict=False), 1):
        if pair[0] != pair[1]:
            return f"line {number} is {pair[1]!r} and not {pair[0]!r}"
    return f"{len(lines[1])} lines and not {len(lines[0])}"


def processes(place: Place) -> dict[int, str]:
    """Return the processes of a night that live, with their commands."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("STALLGUARD_HOME") == str(place.home):
                found[process.pid] = " ".join(process.cmdline())[:100]
    return found


def remains(place: Place) -> list[str]:
    found = [f"process {pid}: {command}" for pid, command in processes(place).items()]
    found += [
        f"temporary file {path.name}" for path in place.temporary.iterdir() if not path.name.startswith(OF_TENSORFLOW)
    ]
    found += [f"sockets {path.name}" for path in (place.home / "s").glob("*")]
    found += [
        f"temporary file {path.relative_to(place.home)}" for path in place.home.rglob("*") if DRAFT.match(path.name)
    ]
    return found

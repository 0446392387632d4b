"""One run of a shape, plain or under `stallguard run`, in a folder of its own, and what it left there.

The folder of a cell:

    files/       what the script works in: a copy of the shape, the harness, and what it writes
    harness/     results.jsonl and arrays/ that the harness keeps
    home/        STALLGUARD_HOME

Must not judge; verdicts.py does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from .scripts_loops import BESIDE
from .shape import Shape

ROOT = Path(__file__).resolve().parents[3]
HARNESS = Path(__file__).resolve().parent / "harness_child.py"
LONGEST = 420.0  # seconds of a run with all its attempts, on a machine that others use too
PATIENCE = 30.0  # seconds that a run has to end after it was asked to
NO_WORDS = ("HARNESS_", "STALLGUARD_", "KERAS_BACKEND", "PYTHONHASHSEED", "PYTHONPATH", "TF_", "XLA_")
Order = Mapping[str, str]
NOTHING: Order = {}
Watch = Callable[[subprocess.Popen[bytes]], None]
Results = dict[str, Any]  # "role: name" to the encoded value


_LIVING: set[subprocess.Popen[bytes]] = set()
_ENDING = threading.Event()


class Batch(NamedTuple):
    """A batch that was trained.  `time`: when it ended, in seconds on the machine's monotonic clock."""

    role: str
    fit: int
    epoch: int
    batch: int
    time: float


@dataclass
class Attempt:
    """What the processes of one attempt recorded: results, random draws, and the batches that they trained."""

    results: Results = field(default_factory=dict)
    drawn: Results = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)


@dataclass
class Ran:
    """A run that is over.  `code` is None if it took too long."""

    code: int | None
    out: str
    err: str
    attempts: list[Attempt]
    folder: Path
    disturbed: bool
    seconds: float

    @property
    def last(self) -> Attempt:
        return self.attempts[-1] if self.attempts else Attempt()

    @property
    def directory(self) -> Path | None:
        latest = self.folder / "home" / "runs" / "latest"
        return latest.resolve() if latest.exists() else None

    def array(self, digest: str) -> Path:
        """Return where the array of that digest is kept."""
        return self.folder / "harness" / "arrays" / f"{digest}.npy"


def interpreter(shape: Shape) -> Path:
    """Return the Python that runs a shape."""
    return ROOT / ".venvs" / shape.python / "bin" / "python" if shape.python else Path(sys.executable)


class Cell:
    """A folder in which a shape runs, once or in several runs that go on from one another."""

    def __init__(self, shape: Shape, folder: Path) -> None:
        """Copy the shape into `folder`."""
        self.shape, self.folder = shape, folder
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        (folder / "harness").mkdir()
        for name, text in shape.texts(BESIDE).items():
            (self.files / name).write_text(text, "utf-8")
        shutil.copy(HARNESS, self.files / "harness.py")

    def edit(self, file: str, old: str, new: str) -> None:
        """Put `new` in the place of `old`, which stands in the file; without `old`, at its end.  Raises ValueError."""
        path = self.files / file
        text = path.read_text("utf-8")
        if old and old not in text:
            raise ValueError(f"{file} has no {old!r} to edit")
        path.write_text(text.replace(old, new) if old else text + new, "utf-8")

    def plain(self, order: Order = NOTHING) -> Ran:
        """Run the shape without stallguard.  `order`: the harness' variables, without their prefix."""
        words = self.shape.command()
        if words[0].endswith(".py"):
            words = (str(interpreter(self.shape)), *words)
        return self._run(words, order)

    def guarded(
        self, options: Sequence[str], order: Order = NOTHING, watch: Watch | None = None, longest: float = LONGEST
    ) -> Ran:
        """Run the shape under `stallguard run` with further options.  `watch`: called beside it, in a thread."""
        python = ("--python", str(interpreter(self.shape)))
        words = (sys.executable, "-m", "stallguard", "run", *python, *options, "--", *self.shape.command())
        return self._run(words, order, watch, longest)

    def _run(self, words: Sequence[str], order: Order, watch: Watch | None = None, longest: float = LONGEST) -> Ran:
        if _ENDING.is_set():
            raise InterruptedError
        began = time.monotonic()
        with subprocess.Popen(
            words, cwd=self.files, env=self._environment(order), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        ) as child:  # fmt: skip
            code: int | None
            _LIVING.add(child)
            if watch is not None:
                threading.Thread(target=watch, args=(child,), daemon=True).start()
            try:
                out, err = child.communicate(timeout=longest)
                code = child.returncode
            except subprocess.TimeoutExpired:
                _end(child)
                out, err = child.communicate()
                code = None
            _LIVING.discard(child)
        return Ran(
            code, out.decode(errors="replace"), err.decode(errors="replace"), attempts_in(self.folder / "harness"),
            self.folder, (self.folder / "harness" / "disturbed").exists(),
            time.monotonic() - began,
        )  # fmt: skip

    def _environment(self, order: Order) -> dict[str, str]:
        user = {name: value for name, value in os.environ.items() if not name.startswith(NO_WORDS)}
        user |= {
            "HARNESS_FOLDER": str(self.folder / "harness"),
            "STALLGUARD_HOME": str(self.folder / "home"),
            "XDG_CONFIG_HOME": str(self.folder),
            "PATH": f"{interpreter(self.shape).parent}{os.pathsep}{user.get('PATH', '')}",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "",
            "KERAS_BACKEND": {"jax": "jax", "torch": "torch"}.get(self.shape.python, "tensorflow"),
        }
        return user | {f"HARNESS_{name.upper()}": value for name, value in order.items() if value}


def end_all() -> None:
    """End every run that goes on, and let none begin: the bench is about to end."""
    _ENDING.set()
    for child in list(_LIVING):
        _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a run: stallguard ends its training; what is left of the group is killed."""
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def attempts_in(folder: Path) -> list[Attempt]:
    found: dict[str, Attempt] = {}
    path = folder / "results.jsonl"
    for line in path.read_bytes().splitlines() if path.exists() else ():
        row = json.loads(line)
        attempt = found.setdefault(row["attempt"], Attempt())
        name = f"{row['role']}: {row['name']}" if row.get("role") and "name" in row else row.get("name", "")
        if row["kind"] == "result":
            attempt.results[name] = row["value"]
        elif row["kind"] == "drawn":
            attempt.drawn[name] = row["value"]
        else:
            fit, epoch, batch = row["at"]
            attempt.batches.append(Batch(row["role"], fit, epoch, batch, row["time"]))
    return list(found.values())

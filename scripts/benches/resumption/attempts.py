"""One attempt of the small training: started as a run's supervisor would, killed when asked, and what it left.

May not judge: chains.py does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallguard.probe import wire

ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "scripts" / "benches" / "resume_child.py"
INJECT = ROOT / "stallguard" / "probe" / "inject"
LONGEST = 120.0  # seconds that an attempt may take
EPOCHS, STEPS = 10, 6  # of the child's fits
Position = tuple[int, int]  # epoch and batch, both from 0


@dataclass
class Kill:
    """When to end an attempt: `after` seconds from its start, or from its first trained batch."""

    after: float
    from_start: bool = False


@dataclass
class Attempt:
    """What one attempt did.  `first`, `end`: seconds to its first and last batch, None where it did not get there."""

    code: int = 0
    first: float | None = None
    end: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    trained: list[Position] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    phase: str = ""  # in which it ended

    @property
    def killed(self) -> bool:
        """Whether it was ended before its training was over."""
        return self.code != 0 and self.end is None


class Place:
    """A folder with what the attempts of one run share: socket, pages, checkpoints."""

    def __init__(self, folder: Path, every: float) -> None:
        """`every`: seconds between two checkpoints inside an epoch; they may cost what they like here."""
        self.folder = folder
        self.every = every
        self.share = 1.0
        self.checkpoints = folder / "backup"
        self.checkpoints.mkdir()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "s"))
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def attempt(self, kind: str, *, resume: bool, kill: Kill | None = None, guarded: bool = True) -> Attempt:
        """Run the child once, with its end at `kill`."""
        made, trace = Attempt(), self.folder / "trace"
        trace.unlink(missing_ok=True)
        began = time.monotonic()
        with subprocess.Popen(
            [sys.executable, str(CHILD), kind],
            env=self._environment(resume, guarded),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            self._watch(child, made, began, kill)
        made.code = child.returncode
        made.trained = _positions(trace)
        made.phase = _phase(self.folder / f"{child.pid}.page")
        return made

    def _environment(self, resume: bool, guarded: bool) -> dict[str, str]:
        user = {name: value for name, value in os.environ.items() if not name.startswith("STALLGUARD_")}
        user |= {"EPOCHS": str(EPOCHS), "TRACE": str(self.folder / "trace"), "TF_CPP_MIN_LOG_LEVEL": "3"}
        if not guarded:
            return user
        return user | {
            "PYTHONPATH": str(INJECT),
            "STALLGUARD_SOCKET": str(self.folder / "s"),
            "STALLGUARD_RUN": str(self.folder),
            "STALLGUARD_TOKEN": "1",
            "STALLGUARD_BACKUP": str(self.checkpoints),
            "STALLGUARD_RESUME": str(int(resume)),
            "STALLGUARD_CHECKPOINT_EVERY": f"{self.every:g}",
            "STALLGUARD_CHECKPOINT_COST": f"{self.share:g}",
        }

    def _watch(self, child: subprocess.Popen[bytes], made: Attempt, began: float, kill: Kill | None) -> None:
        """Listen until the child ends; end it when its time has come."""
        assert child.stdout is not None  # noqa: S101
        end = began + (kill.after if kill and kill.from_start else LONGEST)
        sources: list[Any] = [child.stdout, self._socket]
        lines, ended = b"", False
        while not ended:
            ready, _, _ = select.select(sources, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                child.kill()
                end = time.monotonic() + LONGEST
            if self._socket in ready:
                self._hear(made)
            if child.stdout in ready:
                piece = os.read(child.stdout.fileno(), 1 << 16)
                lines, ended, now = lines + piece, not piece, time.monotonic()
                if made.first is None and b"training\n" in lines:
                    made.first = now - began
                    if kill and not kill.from_start:
                        end = now + kill.after
                if made.end is None and b"}\n" in lines:
                    made.end = now - began
        self._hear(made)
        made.rows = [json.loads(line) for line in lines.splitlines() if line.startswith(b"{")]

    def _hear(self, made: Attempt) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._socket.recv(4096)
                if data.startswith(b"{"):
                    made.notes.append(json.loads(data))


def _positions(trace: Path) -> list[Position]:
    if not trace.exists():
        return []
    rows = [line.split() for line in trace.read_text().splitlines()]
    return [(int(epoch), int(batch)) for _, epoch, batch in rows]


def _phase(page: Path) -> str:
    record = wire.unpack(page.read_bytes()) if page.exists() else None
    return "" if record is None else wire.PHASES[record["phase"]]

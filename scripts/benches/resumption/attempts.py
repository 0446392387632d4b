"""One attempt of a small training: started with what a run's supervisor gives it, and ended when asked.

For figures that a whole run would hide; chains.py has the real runs.
"""

from __future__ import annotations

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

from stallguard.launch.environment import child_environment
from stallguard.probe.settings import ProbeSettings

ROOT = Path(__file__).resolve().parents[3]
CHILD = ROOT / "scripts" / "benches" / "resume_child.py"
LONGEST = 240.0  # seconds that an attempt may take
EPOCHS = "10"  # of the child's fits


@dataclass
class Attempt:
    """What one attempt did.  `first`: seconds to its first batch, None if it did not get there."""

    first: float | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)


class Place:
    """A folder with what the attempts of one run share: socket, pages, checkpoints."""

    def __init__(self, folder: Path, every: float, share: float = 1.0) -> None:
        """`every`: seconds between two checkpoints inside an epoch; `share` of the time that they may take."""
        self.folder, self._every, self._share = folder, every, share
        self.checkpoints = folder / "checkpoints"
        self.checkpoints.mkdir()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "s"))
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def attempt(self, kind: str, *, resume: bool, kill_after: float | None = None, guarded: bool = True) -> Attempt:
        """Run the child once.  `kill_after`: seconds from its first batch to its end by SIGKILL."""
        made, began = Attempt(), time.monotonic()
        with subprocess.Popen(
            [sys.executable, str(CHILD), kind], env=self._environment(resume, guarded), cwd=self.folder,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as child:  # fmt: skip
            self._watch(child, made, began, kill_after)
        return made

    def _environment(self, resume: bool, guarded: bool) -> dict[str, str]:
        user = {name: value for name, value in os.environ.items() if not name.startswith("STALLGUARD_")}
        user |= {"EPOCHS": EPOCHS, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if not guarded:
            return user
        wish = ProbeSettings(
            socket=str(self.folder / "s"), pages=str(self.folder), token=1, checkpoints=str(self.checkpoints),
            resume=resume, every=self._every, cost=self._share,
        )  # fmt: skip
        return child_environment(user, wish)

    def _watch(self, child: subprocess.Popen[bytes], made: Attempt, began: float, kill_after: float | None) -> None:
        """Read until the child ends; end it when its time has come.  What its probe sends is read and dropped."""
        assert child.stdout is not None  # noqa: S101
        end, lines, ended = began + LONGEST, b"", False
        while not ended:
            sources: list[Any] = [child.stdout, self._socket]
            ready, _, _ = select.select(sources, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                child.kill()
                end = time.monotonic() + LONGEST
            if self._socket in ready:
                self._socket.recv(4096)
            if child.stdout in ready:
                piece = os.read(child.stdout.fileno(), 1 << 16)
                lines, ended = lines + piece, not piece
                if made.first is None and b"training\n" in lines:
                    made.first = time.monotonic() - began
                    end = end if kill_after is None else time.monotonic() + kill_after
        made.rows = [json.loads(line) for line in lines.splitlines() if line.startswith(b"{")]

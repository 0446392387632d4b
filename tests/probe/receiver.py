"""A tiny stand-in for the supervisor: a socket, a run directory, and what a child sent and stored there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from stallguard.probe import settings, wire
from stallguard.probe.settings import ProbeSettings

ROOT = Path(__file__).resolve().parents[2]
INJECT = ROOT / "stallguard" / "probe" / "inject"
TOKEN = 4711
# JAX compiles for longer than it computes here: without LLVM's optimizations a fifth less.
FEWER_PASSES = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}


@dataclass
class Heard:
    """What one child said: every record and note in order, its output, and the last page of each process."""

    code: int = 0
    out: str = ""
    err: str = ""
    records: list[dict[str, int]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    pages: dict[int, dict[str, int]] = field(default_factory=dict)

    def hello(self) -> dict[str, Any]:
        """Return the last hello."""
        return [note for note in self.notes if note["kind"] == "hello"][-1]

    def last(self) -> dict[str, int]:
        """Return the last record sent."""
        return self.records[-1]

    def phases(self) -> list[str]:
        """Return the phases of the records, each run of equal ones once."""
        names = [wire.PHASES[record["phase"]] for record in self.records]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


class Receiver:
    """Use as a context manager; `start` and `hear` as often as needed."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="sg-"))
        (self.folder / "probe").mkdir(mode=0o700)
        self.address = str(self.folder / "s")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.settimeout(0.05)
        self.children: list[subprocess.Popen[str]] = []
        return self

    def __exit__(self, *exc: object) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.communicate()
        self.socket.close()
        shutil.rmtree(self.folder)

    def environment(self, **extra: Any) -> dict[str, str]:
        """Return the environment that the supervisor gives to a child.  `extra`: variables and settings."""
        wish: dict[str, Any] = {"socket": self.address, "pages": str(self.folder / "probe"), "token": TOKEN}
        wish |= {name: extra.pop(name) for name in ProbeSettings.__annotations__ if name in extra}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("STALLGUARD_")}
        path = os.pathsep.join(part for part in (str(INJECT), extra.pop("PYTHONPATH", "")) if part)
        return {
            **inherited,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),  # else it stays in TMPDIR
            **(FEWER_PASSES if extra.get("KERAS_BACKEND") == "jax" else {}),
            settings.VARIABLE: settings.encode(ProbeSettings(**wish)),
            **extra,
            "PYTHONPATH": path,
        }

    def start(
        self, command: Sequence[str], cwd: Path | None = None, stdin: int = subprocess.DEVNULL, **extra: Any
    ) -> subprocess.Popen[str]:
        """Start a child under the probe."""
        child = subprocess.Popen(
            list(command),
            env=self.environment(**extra),
            cwd=cwd or self.folder,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def receive(self, heartbeat: Heard) -> bool:
        """Take one datagram; False where none came within 50 ms."""
        try:
            data = self.socket.recv(4096)
        except TimeoutError:
            return False
        record = wire.unpack(data)
        if record is None:
            heartbeat.notes.append(json.loads(data))
        else:
            heartbeat.records.append(record)
        return True

    def run(self, command: Sequence[str], timeout: float = 60, cwd: Path | None = None, **extra: Any) -> Heard:
        """Run a child to its end; its output must fit a pipe."""
        heartbeat = Heard()
        child = self.start(command, cwd, **extra)
        deadline = time.monotonic() + timeout
        while child.poll() is None and time.monotonic() < deadline:
            self.receive(heartbeat)
        while self.receive(heartbeat):
            pass
        assert child.poll() is not None, "the child did not end in time"
        heartbeat.out, heartbeat.err = child.communicate()
        heartbeat.code = child.returncode
        heartbeat.pages = self.pages()
        return heartbeat

    def pages(self) -> dict[int, dict[str, int]]:
        """Return the pages of the run by pid."""
        found = {}
        for path in (self.folder / "probe").glob("*.page"):
            record = wire.unpack(path.read_bytes())
            if record is not None:
                found[int(path.stem)] = record
        return found

    def stacks(self, pid: int) -> str:
        """Return what the stack-dump signal wrote."""
        return (self.folder / "probe" / f"{pid}.stacks").read_text()


def python(code: str, interpreter: str = sys.executable) -> list[str]:
    """Return the command for a program given as text."""
    return [interpreter, "-c", code]


def until(receiver, heartbeat, condition, seconds=10.0):
    """Receive until `condition(heard)` holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        receiver.receive(heartbeat)
        if condition(heartbeat):
            return
    raise AssertionError("it never happened")

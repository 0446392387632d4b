"""Plays faults on a supervised training: `Player.play` does what a fault says, and takes it back later.

Which faults come in which order is a pure function of a seed (`plan`).  A fault that finds nothing to hit (no training
lives, no checkpoint exists) is not played; the caller tries again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from harness.groups import Unavailable, group
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

from .place import Place, Service


class Kind(NamedTuple):
    """A kind of fault.  `lasts`: the least and the most seconds after which it is taken back; 0: it is not."""

    name: str
    title: str
    lasts: tuple[float, float] = (0.0, 0.0)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill", "kill -9 of the training"),
        Kind("supervisor", "kill -9 of stallguard"),
        Kind("deadlock", "deadlock in a callback"),
        Kind("blocked", "blocked function of the pipeline"),
        Kind("stop", "SIGSTOP, later SIGCONT", (2.0, 12.0)),
        Kind("memory", "out of memory"),
        Kind("full", "full disk", (4.0, 20.0)),
        Kind("read-only", "read-only disk", (4.0, 20.0)),
        Kind("sockets", "removed sockets"),
        Kind("checkpoint", "newest checkpoint damaged, then kill -9"),
    )
}


class Fault(NamedTuple):
    """A fault to come.  `lasts`: seconds; `share`: 0..1, chooses between the variants of a kind."""

    kind: str
    lasts: float
    share: float


def plan(seed: int, count: int, kinds: Sequence[str] = tuple(KINDS)) -> list[Fault]:
    """Return `count` faults.  Each kind comes once before any comes again, in an order drawn each time."""
    dice, faults = random.Random(seed), list[Fault]()
    while len(faults) < count:
        for kind in dice.sample(list(kinds), len(kinds)):
            faults.append(Fault(kind, dice.uniform(*KINDS[kind].lasts), dice.random()))
    return faults[:count]


LITTLE = 1 << 20  # bytes that a training may take more before the kernel kills it
KERNEL = 4.0  # seconds that the kernel has for that: a checkpoint needs memory every two seconds


class Played(NamedTuple):
    """A fault that was played.  Times are those of the monotonic clock."""

    kind: str
    at: float


class Player:
    """`group`: the control group whose processes the kernel kills for memory; None: that kill is imitated."""

    def __init__(self, place: Place, service: Service) -> None:
        self._place, self._service = place, service
        self._timers: list[threading.Timer] = []
        self._taking_back: set[str] = set()
        self._closing = contextlib.ExitStack()
        self.group: Path | None = None
        with contextlib.suppress(Unavailable):
            self.group = self._closing.enter_context(group(memory=LITTLE))
        self._plays: dict[str, Callable[[Fault], bool]] = {
            "kill": self._kill, "supervisor": self._kill_supervisor, "deadlock": self._order,
            "blocked": self._order, "stop": self._stop, "memory": self._take_memory, "full": self._fill,
            "read-only": self._make_read_only, "sockets": self._remove_sockets, "checkpoint": self._damage,
        }  # fmt: skip

    def possible(self) -> list[str]:
        return [kind for kind in KINDS if self._place.has_disk or kind not in ("full", "read-only")]

    def play(self, fault: Fault) -> Played | None:
        """Play a fault; None if there is nothing to play it on."""
        if fault.kind in self._taking_back:
            return None
        now = time.monotonic()
        return Played(fault.kind, now) if self._plays[fault.kind](fault) else None

    def close(self) -> None:
        for timer in self._timers:
            timer.join()
        self._closing.close()

    # ---- whom it hits ------------------------------------------------------------------------------------------

    def run(self) -> RunDir | None:
        runs = list_runs(self._place.home / "runs")
        return RunDir(runs[-1].path) if runs else None

    def training(self) -> int | None:
        run = self.run()
        attempt = run_files.current_attempt(run) if run is not None else None
        return attempt.process.pid if attempt is not None and run_files.lives(attempt.process) else None

    def _later(self, fault: Fault, back: Callable[[], object]) -> bool:
        def take_back() -> None:
            back()
            self._taking_back.discard(fault.kind)

        self._taking_back.add(fault.kind)
        self._timers.append(threading.Timer(fault.lasts, take_back))
        self._timers[-1].start()
        return True

    # ---- what is done ------------------------------------------------------------------------------------------

    def _kill(self, _fault: Fault) -> bool:
        return _signalled(self.training(), signal.SIGKILL)

    def _kill_supervisor(self, _fault: Fault) -> bool:
        """Kill stallguard, once it has an attempt: what it leaves before that is a row of `bench chaos`."""
        run = self.run()
        has_begun = run is not None and run_files.current_attempt(run) is not None
        return has_begun and _signalled(self._service.supervisor, signal.SIGKILL)

    def _order(self, fault: Fault) -> bool:
        """Order a halt of the script; one that was not carried out yet must be, first."""
        order = self._place.orders / fault.kind
        if order.exists() or self.training() is None:
            return False
        order.touch()
        return True

    def _stop(self, fault: Fault) -> bool:
        pid = self.training()
        return _signalled(pid, signal.SIGSTOP) and self._later(fault, lambda: _signalled(pid, signal.SIGCONT))

    def _take_memory(self, _fault: Fault) -> bool:
        """Have the kernel kill the training for memory; imitate that if there is no group, or the kernel does not."""
        pid = self.training()
        if pid is None:
            return False
        if self.group is not None:
            with contextlib.suppress(OSError):
                (self.group / "cgroup.procs").write_text(str(pid))
            end = time.monotonic() + KERNEL
            while psutil.pid_exists(pid) and time.monotonic() < end:
                time.sleep(0.05)
        _signalled(pid, signal.SIGKILL)
        return True

    def _fill(self, fault: Fault) -> bool:
        self._place.fill()
        return self._later(fault, self._place.make_room)

    def _make_read_only(self, fault: Fault) -> bool:
        return self._place.make_read_only() and self._later(fault, self._place.make_writable)

    def _remove_sockets(self, fault: Fault) -> bool:
        """Remove the sockets, or their directory as well."""
        run = self.run()
        asked = run_files.asked(run) if run is not None else None
        if asked is None or not asked.control or not Path(asked.control).parent.exists():
            return False
        place = Path(asked.control).parent
        if fault.share < 0.5:
            shutil.rmtree(place, ignore_errors=True)
        try:
            for name in ("beats", "control"):
                (place / name).unlink(missing_ok=True)
        except OSError:  # the disk is read-only
            return False
        return True

    def _damage(self, fault: Fault) -> bool:
        """Spoil the newest checkpoint, so that only its checks can show it, and kill the training that wrote it."""
        run, pid = self.run(), self.training()
        newest = newest_generation(run.checkpoints) if run is not None else None
        if newest is None or pid is None:
            return False
        os.kill(pid, signal.SIGSTOP)  # it must not write a newer one meanwhile
        try:
            spoil(newest / "tensors.bin", fault.share)
        except OSError:  # the disk is read-only, or the checkpoint was just removed
            os.kill(pid, signal.SIGCONT)
            return False
        os.kill(pid, signal.SIGKILL)
        return True


def newest_generation(checkpoints: Path) -> Path | None:
    """Return the newest generation of all fits; None if there is none."""
    found = [path.parent for path in checkpoints.rglob("facts.json")]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def spoil(file: Path, share: float) -> None:
    """Damage a file: cut it short, or turn one of its bytes over.  `share`: 0..1, chooses which, and where."""
    size = file.stat().st_size
    place = min(size - 1, int(size * share))
    with file.open("r+b") as opened:
        if share < 0.3:
            opened.truncate(place)
            return
        opened.seek(place)
        byte = opened.read(1)[0]
        opened.seek(place)
        opened.write(bytes([byte ^ 0xFF]))


def _signalled(pid: int | None, number: int) -> bool:
    if pid is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False

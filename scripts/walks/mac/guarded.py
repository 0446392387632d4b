"""A run that works in the background while the walk looks at it.

Must not judge what is seen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mac.scene import Scene, undisturbed, until
from stallguard.launch import earlier_run
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

QUIET = ("--set", "notify.desktop=off")
ENDS = 30.0  # seconds for stallguard to end its training when it is asked to
# A training that beats until the file that is its argument appears, and then ends with the code that it contains.
BEATS = """
import os, sys, time
import stallguard
while not os.path.exists(sys.argv[1]):
    stallguard.beat()
    time.sleep(0.1)
sys.exit(int(open(sys.argv[1]).read() or 0))
"""


class GuardedRun:
    """A stallguard that was started, and the run that it guards."""

    def __init__(self, process: subprocess.Popen[bytes], runs: Path, before: frozenset[str]) -> None:
        """`before`: the runs that were there already."""
        self.process, self._runs, self._before = process, runs, before

    @property
    def run(self) -> RunDir | None:
        """The run, once there is one."""
        found = sorted(names(self._runs) - self._before)
        return RunDir(self._runs / found[-1]) if found else None

    @property
    def events(self) -> list[dict[str, Any]]:
        """What its journal has so far."""
        return events(self.run) if self.run else []

    @property
    def beats(self) -> int:
        """The batches that its journal has so far."""
        return max((int(one.get("beats") or 0) for one in self.events), default=0)

    @property
    def output(self) -> str:
        """What the training has printed."""
        file = self.run.output if self.run else None
        return file.read_text(errors="replace") if file and file.exists() else ""

    def training(self) -> run_files.Identity | None:
        """Return the process of the training; None if there is none yet."""
        record = run_files.recall_attempt(self.run) if self.run else None
        return record.process if record else None

    def names(self, event: str) -> list[dict[str, Any]]:
        """Return the events of that name."""
        return [one for one in self.events if one.get("event") == event]


def names(runs: Path) -> frozenset[str]:
    """Return the ids of the runs in a directory."""
    found = runs.iterdir() if runs.is_dir() else iter(())
    return frozenset(path.name for path in found if (path / "run.json").exists() and not path.is_symlink())


def events(run: RunDir) -> list[dict[str, Any]]:
    """Return the lines of a journal; one that is being written is left out."""
    found: list[dict[str, Any]] = []
    text = run.journal.read_text(errors="replace") if run.journal.exists() else ""
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


@contextlib.contextmanager
def started(scene: Scene, *words: str) -> Iterator[GuardedRun]:
    """Start `stallguard WORDS`, which begins or continues a run; nothing of it is left when the block ends."""
    runs = scene.kept / "runs"
    log = scene.home / f"guarded-{len(scene.words)}-{os.urandom(2).hex()}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "stallguard", *words), env=scene.env, cwd=scene.home,
            stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    one = GuardedRun(process, runs, names(runs))
    try:
        yield one
    finally:
        with undisturbed():
            end(one)
            scene.files[f"stallguard/{log.name}"] = log.read_text(errors="replace")


def end(one: GuardedRun) -> None:
    """End a stallguard and its training, also if only one of them is alive."""
    if one.process.poll() is None:
        one.process.send_signal(signal.SIGTERM)
        until(lambda: one.process.poll() is not None, ENDS)
    if one.process.poll() is None:
        one.process.kill()
    one.process.wait()
    if one.run is not None:
        end_orphan(one.run)


def end_orphan(run: RunDir) -> None:
    """End the training of a run whose stallguard was killed."""
    left = earlier_run.find_orphan(run)
    if left is not None:
        earlier_run.end_orphan(run, left)

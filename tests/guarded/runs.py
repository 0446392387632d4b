"""Runs `stallguard run` for real and reads what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stallguard.core.events import AnyEvent
from stallguard.storage import journal

SCRIPTS = Path(__file__).parent / "scripts"
# The beginning of a program for `python -c` that spoils one of our own functions and then is `stallguard`: its first
# word says where that function is (module/class/name); `spoil` puts another in its place.
SPOILED = """
import importlib, sys
from stallguard.cli import main
module, *owners, name = sys.argv.pop(1).split("/")
place = importlib.import_module(module)
for owner in owners:
    place = getattr(place, owner)
whole = getattr(place, name)
def spoil(other):
    setattr(place, name, other)
    main()
"""
# Lines of a script that lets stallguard save and load its number `step`.
COUNTER = """
def save(path):
    with open(path, "w") as file:
        file.write(str(step))
def load(path):
    global step
    step = int(open(path).read())
stallguard.checkpoint(save, load)
"""
# The Python that trains: any from 3.9 on.
GUARDED = os.environ.get("STALLGUARD_GUARDED_PYTHON", sys.executable)
AT_ONCE = ("--set", "detector.act_after=1s")  # act as soon as it is judged


class Guarded(NamedTuple):
    """A run that is over."""

    code: int
    out: bytes
    err: str
    run: Path | None

    @property
    def lines(self) -> list[journal.JournalEntry]:
        """Its journal."""
        assert self.run is not None
        return list(journal.read(self.run / "journal.jsonl"))

    @property
    def events(self) -> list[AnyEvent]:
        """Its events."""
        assert self.run is not None
        return list(journal.events(self.run / "journal.jsonl"))

    def actions(self, event: str) -> list[dict[str, Any]]:
        """Its actions of one kind: "attempt.signalled"."""
        return [msgspec.json.decode(entry.raw) for entry in self.lines if entry.line.event == event]

    def announced(self, message: str) -> list[dict[str, str]]:
        """The facts of each announcement of `message`, by its name in the narrative."""
        return [entry.line.facts for entry in self.lines if entry.line.event == message]

    def outcome(self) -> dict[str, Any]:
        """Its outcome.json."""
        assert self.run is not None
        found: dict[str, Any] = msgspec.json.decode((self.run / "outcome.json").read_bytes())
        return found


def stallguard(
    home: Path, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Guarded:
    """Run the command line with its runs in `home`."""
    environment = {**os.environ, "STALLGUARD_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3", **(env or {})}
    done = subprocess.run(
        [sys.executable, "-m", "stallguard", *words], env=environment, cwd=cwd, capture_output=True,
        check=False, timeout=400, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    latest = home / "runs" / "latest"
    return Guarded(
        done.returncode, done.stdout, done.stderr.decode(), latest.resolve() if latest.exists() else None
    )


def guard(home: Path, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Guarded:
    """Run `stallguard run --python GUARDED` with further options and COMMAND."""
    return stallguard(home, "run", "--python", GUARDED, *words, env=env, cwd=cwd)

"""What a job remembers between its starts: when it was installed and last started, and which run it works on.

One small file a job beside the runs.  Its restarts are counted here and not in the run's directory, because
stallguard can also die before there is a run, and a run that was pruned must not set the count to nothing.
May not decide anything.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

import msgspec

from stallguard import outcome, paths

Moment = dt.datetime


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times are local, with their offset.  `wanted`, `halted`: a start or an end was asked for by hand."""

    installed: Moment | None = None
    started: Moment | None = None
    wanted: bool = False
    halted: bool = False
    restarts: tuple[
        Moment, ...
    ] = ()  # starts that the service manager made because stallguard itself had died
    run: str = ""  # the run of the last start, by id
    trouble: str = ""  # why the last start came to nothing


def file(name: str) -> Path:
    """Return the file of a job."""
    return paths.home() / "agents" / f"{name}.json"


def recall(name: str) -> Memory:
    """Return what a job remembers; nothing where the file is absent or damaged: it will be written anew."""
    with contextlib.suppress(*outcome.DAMAGED):
        return msgspec.json.decode(file(name).read_bytes(), type=Memory)
    return Memory()


def keep(name: str, memory: Memory) -> None:
    """Write what a job remembers.  Raises OSError."""
    path = file(name)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    outcome.write(path, memory)


def forget(name: str) -> None:
    """Remove the file of a job."""
    file(name).unlink(missing_ok=True)


def names() -> list[str]:
    """Return the jobs that remember anything."""
    return sorted(path.stem for path in file("x").parent.glob("*.json"))

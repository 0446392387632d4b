"""The state of a job between its starts: when it was installed and last started, and which run it works on.

One small file per job beside the runs.  Its restarts are counted here and not in the run's directory, because
stallguard can crash before a run exists, and pruning a run must not reset the count.
Must not decide anything.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stallguard.errors import UNREADABLE
from stallguard.storage import paths, private, run_files

Moment = dt.datetime


class JobMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Times are local, with their offset.  `wanted`, `halted`: the user requested a start or a stop."""

    installed: Moment | None = None
    started: Moment | None = None
    ended: Moment | None = None  # of the last attempt; before `started` while it runs
    missed: Moment | None = None  # the newest start that is known to be missed
    wanted: bool = False
    halted: bool = False
    # When the service manager started the job because stallguard itself had crashed.
    restarts: tuple[Moment, ...] = ()
    run: str = ""  # the run of the last start, by id
    trouble: str = ""  # why the last start failed
    damaged: bool = False  # the file is there and cannot be read


def file(name: str) -> Path:
    """Return the file of a job."""
    return paths.home() / "agents" / f"{name}.json"


def recall(name: str) -> JobMemory:
    """Return the state of a job: empty if there is no file, `damaged` if it cannot be read."""
    path = file(name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobMemory)
    except FileNotFoundError:
        return JobMemory()
    except (OSError, *UNREADABLE) as error:
        why = f"{path} cannot be read ({error}); the newest run of the same command is used instead"
        return JobMemory(trouble=why, damaged=True)


def keep(name: str, memory: JobMemory) -> None:
    """Write the state of a job; a file that could not be read is kept beside it.  Raises OSError."""
    path = file(name)
    private.own(path.parent)
    if memory.damaged:
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".damaged"))
    run_files.write(path, replace(memory, damaged=False))


def forget(name: str) -> None:
    """Remove the file of a job."""
    file(name).unlink(missing_ok=True)


def names() -> list[str]:
    """Return the jobs that have a state."""
    return sorted(path.stem for path in file("x").parent.glob("*.json"))

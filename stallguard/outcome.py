"""What was asked of a run and what came of it: run.json and outcome.json, and the short line that lists show.

Reads and writes two small files of a run directory; may not read the journal.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.errors import GAVE_UP, STOPPED_ON_TIME, UNREADABLE
from stallguard.host import system
from stallguard.paths import RunDir

SCHEMA = 1
ENDINGS = {0: "finished", STOPPED_ON_TIME: "stopped", GAVE_UP: "gave up"}  # by the run's exit code
REASONS = {"you asked": "stopped", "interrupted": "interrupted"}  # by the beginning of why it ended


class Identity(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for a later one with the same number, though the wall clock is set.

    `started`: seconds, as host's start_time has them: since the boot on Linux, by the wall clock of that moment, which
    the kernel keeps, on macOS.  `boot`: which boot of the machine; "" in files of versions that noted psutil's
    create_time instead.
    """

    pid: int
    started: float
    boot: str = ""


class AskedFor(msgspec.Struct, frozen=True, omit_defaults=True):
    """run.json: what was asked, before anything happened."""

    schema: int
    id: str
    command: list[str]
    argv: list[str]
    cwd: str
    began: str  # UTC, ISO 8601
    supervisor: Identity
    interpreter: str = ""
    interpreter_why: str = ""
    outside: str = ""  # why the probe cannot enter; "" where it can
    heir_of: str = ""  # the run whose checkpoints it went on from
    control: str = ""  # path of the control socket while the run lives
    config: dict[str, Any] = {}
    origins: dict[str, str] = {}


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """outcome.json: what came of it; absent while the run lives and where stallguard itself was killed."""

    schema: int
    code: int
    why: str
    ended: str  # UTC
    seconds: float
    batches: int
    incidents: int
    attempts: int
    lost: float  # seconds that stalls, crashes and restarts cost (core.lost)


def utc() -> str:
    """Return the present time as run.json and outcome.json have it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def identity(pid: int) -> Identity:
    """Return the identity of a process, a zombie too.  Raises ProcessLookupError if there is none."""
    started = system.start_time(pid)
    if started is None:
        raise ProcessLookupError(errno.ESRCH, f"there is no process {pid}")
    return Identity(pid=pid, started=started, boot=system.boot())


def lives(who: Identity) -> bool:
    """Tell whether that very process is still there; a zombie, which nobody has waited for yet, is not."""
    if who.boot:
        return who.boot == system.boot() and system.alive(who.pid, who.started)
    import psutil  # 40 ms that only a run of an older version without an end needs

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(who.pid)
        same = abs(process.create_time() - who.started) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_of_another_boot(who: Identity) -> bool:
    """Tell whether the machine was started anew since that process began."""
    if who.boot:
        return who.boot != system.boot()
    import psutil

    return who.started < psutil.boot_time()


def write(path: Path, value: msgspec.Struct) -> None:
    """Write `value` as JSON, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(jsontext.exact(value, indent=2) + b"\n")
    draft.replace(path)


def asked(run: RunDir) -> AskedFor | None:
    """Return what was asked, or None where run.json is damaged."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return jsontext.decode(run.asked.read_bytes(), AskedFor)
    return None


def outcome(run: RunDir) -> Outcome | None:
    """Return what came of it, or None where the run has no end yet."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return jsontext.decode((run.path / "outcome.json").read_bytes(), Outcome)
    return None


def state(run: RunDir) -> str:
    """Return the state of a run.

    running; finished; stopped (on time, or by an order); interrupted (Ctrl-C); gave up; failed; lost (stallguard ended
    without a word); trial (a try of find-batch that is over).
    """
    end = outcome(run)
    if end is not None:
        reason = next((state for begun, state in REASONS.items() if end.why.startswith(begun)), "failed")
        return "trial" if run.is_trial else ENDINGS.get(end.code, reason)
    start = asked(run)
    return "running" if start is not None and lives(start.supervisor) else "lost"

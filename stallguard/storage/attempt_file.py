"""The file of the present attempt: what a later stallguard needs to guard it again.

One small file in a run's directory, readable by its owner only.  Must not start or end anything.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.probe import settings
from stallguard.storage import private, run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import Identity

SCHEMA = 1


class AttemptRecord(msgspec.Struct, frozen=True):
    """`token`: authenticates the probe's records; `place`: the directory of its sockets."""

    schema: int
    number: int
    process: Identity
    token: int
    place: str


def file(run: RunDir) -> Path:
    """Return the path of the file."""
    return run.path / "attempt.json"


def exit_file(run: RunDir, token: int, number: int) -> Path:
    """Return where the waiter of an attempt writes its exit code.  `number`: of the attempt, as far as it is known."""
    return next(run.path.glob(f"exit-{token:x}.*"), run.path / f"exit-{token:x}.{number}")


def exit_files(number: int) -> str:
    """Return the pattern of the name of that file for the attempt `number`."""
    return f"exit-*.{number}"


def ended(run: RunDir, number: int, pid: int, file: Path) -> AttemptRecord:
    """Return the record of an attempt that is over and was never recorded.  `file`: its waiter's."""
    token = int(file.name.removeprefix("exit-").partition(".")[0], 16)
    return AttemptRecord(SCHEMA, number, Identity(pid=pid, started=-1.0, boot="?"), token, str(run.path))


def current(run: RunDir) -> AttemptRecord | None:
    """Return the recorded attempt, or a live one that could not be recorded before stallguard was killed."""
    noted = recall(run)
    return noted if noted is not None and run_files.lives(noted.process) else found(run) or noted


def found(run: RunDir) -> AttemptRecord | None:
    """Return the live attempt, found by the environment of its process; its number is not known: 0."""
    import psutil  # 10 ms that must not delay the start of the training

    from stallguard.host.psutil_errors import ERRORS

    try:
        processes = list(psutil.process_iter())
    except ERRORS:
        return None
    for process in processes:
        with contextlib.suppress(*ERRORS, KeyError):  # gone, or of another user
            wish = settings.of(process.environ())
            if wish.pages == str(run.probe) and os.getsid(process.pid) == process.pid:
                who = run_files.identity(process.pid)
                place = str(Path(wish.socket).parent)
                return AttemptRecord(SCHEMA, 0, who, wish.token, place)
    return None


def keep(run: RunDir, attempt: AttemptRecord) -> bool:
    """Write it atomically; return whether that was possible.  Without it, only a live attempt can be found."""
    try:
        run_files.write(file(run), attempt)
    except OSError:  # a full disk
        return False
    return True


def recall(run: RunDir) -> AttemptRecord | None:
    """Return it, or None if there is none, it is damaged, or another user wrote it: its process would be ended."""
    with contextlib.suppress(OSError, *UNREADABLE):
        path = file(run)
        if private.is_ours(path):
            return jsontext.decode(path.read_bytes(), AttemptRecord)
    return None

"""The files of a job on this machine: what its runs print, and the lock that says that one of them is alive."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from stallguard.storage import paths, private

MOST_LOG = 16 << 20  # bytes of what a job's runs print here; the run itself keeps its output and turns it
LAST_LINES = 3  # of a run's messages, in the reason why it could not begin


def locks() -> Path:
    """Return the folder of the files of which runs hold the locks."""
    return paths.home() / "fleet" / "begun"


def lock_of(job: str) -> Path:
    """Return the file of which a run of a job on this machine holds the lock."""
    return locks() / job


def held() -> list[Path]:
    """Return the files of the runs that are alive; each has the name of its job."""
    return sorted(path for path in locks().glob("*") if is_held(path))


def is_held(lock: Path) -> bool:
    """Return whether a run that is alive holds the lock of its file."""
    try:
        with open(lock, "rb", opener=private.opener) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def logs() -> Path:
    """Return the folder of what the runs of jobs print here."""
    return paths.home() / "fleet" / "logs"


def log_of(job: str) -> Path:
    """Return the file of what the runs of a job print here."""
    return logs() / f"{job}.log"


def bound(log: Path) -> None:
    """Empty a log that is too large; what writes to it appends, and goes on at its beginning."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > MOST_LOG:
            os.truncate(log, 0)


def last_lines(log: Path, begins: int) -> str:
    """Return what a run said last, in a line.  `begins`: where its output begins in the file."""
    with log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begins if begins <= size else 0, size - 4096))  # it can have been emptied meanwhile
        lines = file.read().decode(errors="replace").splitlines()
    texts = [line.removeprefix("stallguard: ").strip() for line in lines if line.strip()]
    return "; ".join(texts[-LAST_LINES:]) or "it ended without a message"

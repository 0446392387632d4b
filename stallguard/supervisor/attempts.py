"""The attempt that runs now, on the disk: what a later stallguard must know to guard it again.

One small file of a run's directory, readable by its owner alone.  May not start or end anything.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
import psutil

from stallguard import outcome
from stallguard.outcome import Identity
from stallguard.paths import RunDir

SCHEMA = 1


class Attempt(msgspec.Struct, frozen=True):
    """`token`: what the probe signs its records with; `place`: the directory of the sockets that it knows."""

    schema: int
    number: int
    process: Identity
    token: int
    place: str


def file(run: RunDir) -> Path:
    """Return where it is kept."""
    return run.path / "attempt.json"


def current(run: RunDir) -> Attempt | None:
    """Return the attempt that was noted last, or the living one that died with the note unwritten."""
    noted = recall(run)
    return noted if noted is not None and outcome.lives(noted.process) else found(run) or noted


def found(run: RunDir) -> Attempt | None:
    """Return the attempt whose process lives, found by what it was told of this run; its number is not known: 0."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError, ValueError, KeyError):  # gone, or somebody else's
            told = process.environ()
            if told["STALLGUARD_RUN"] == str(run.probe) and os.getsid(process.pid) == process.pid:
                who = Identity(pid=process.pid, started=process.create_time())
                place = str(Path(told["STALLGUARD_SOCKET"]).parent)
                return Attempt(SCHEMA, 0, who, int(told["STALLGUARD_TOKEN"]), place)
    return None


def keep(run: RunDir, attempt: Attempt) -> None:
    """Write it, whole or not at all; a full disk only means that this attempt cannot be taken up again."""
    with contextlib.suppress(OSError):
        outcome.write(file(run), attempt)


def recall(run: RunDir) -> Attempt | None:
    """Return it, or None where there is none or it is damaged."""
    with contextlib.suppress(*outcome.DAMAGED):
        return msgspec.json.decode(file(run).read_bytes(), type=Attempt)
    return None

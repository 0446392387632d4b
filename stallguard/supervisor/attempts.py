"""The attempt that runs now, on the disk: what a later stallguard must know to guard it again.

One small file of a run's directory, readable by its owner alone.  May not start or end anything.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

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


def keep(run: RunDir, attempt: Attempt) -> None:
    """Write it, whole or not at all; a full disk only means that this attempt cannot be taken up again."""
    with contextlib.suppress(OSError):
        outcome.write(file(run), attempt)


def recall(run: RunDir) -> Attempt | None:
    """Return it, or None where there is none or it is damaged."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file(run).read_bytes(), type=Attempt)
    return None

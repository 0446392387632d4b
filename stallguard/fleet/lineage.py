"""Which published generation a run of this machine goes on from: one small file in its directory.

If that is still the newest of the job, the checkpoints here are the same or further, and nothing needs to be fetched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.errors import UNREADABLE
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir, list_runs

SCHEMA = 1
NAME = "job.json"


# What results can depend on to the bit: which instructions and which kernels of the system's libraries compute.
FACTS = ("system", "version", "machine", "chip", "rosetta")


class Lineage(msgspec.Struct, frozen=True):
    """`slot`: of the newest generation that the run's checkpoints contain; 0: none was published."""

    schema: int
    store: str
    job: str
    slot: int


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what differs between two machines' facts (host.system.facts) and can change a result, "" if nothing."""
    pairs = [(before.get(name), now.get(name)) for name in FACTS]
    return ", ".join(f"{then or 'unknown'} -> {here or 'unknown'}" for then, here in pairs if then != here)


def keep(run: RunDir, store: str, job: str, slot: int) -> None:
    """Write the file, atomically.  Raises OSError."""
    run_files.write(run.path / NAME, Lineage(SCHEMA, store, job, slot))


def recall(run: RunDir) -> Lineage | None:
    """Return what the file says, None if there is none or it is damaged."""
    with contextlib.suppress(OSError, *UNREADABLE):
        return jsontext.decode((run.path / NAME).read_bytes(), Lineage)
    return None


def newest(store: str, job: str, slot: int) -> RunDir | None:
    """Return the newest run here whose checkpoints contain the job's newest generation, at `slot`."""
    wanted = Lineage(SCHEMA, store, job, slot)
    runs = reversed(list_runs())
    return next((run for run in runs if recall(run) == wanted and run.has_checkpoints()), None)

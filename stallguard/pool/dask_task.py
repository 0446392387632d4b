"""What the engine runs on a machine: one function, which names a job and nothing that could be executed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallguard.pool.runs_here import RunsHere

# The scheduler's message to a worker: look at the store.  What it says is not used for anything else.
NOTICE = "stallguard-notice"
_HERE: list[RunsHere] = []


def serve(runs: RunsHere) -> None:
    """Let `train` use the runs of this process."""
    _HERE[:] = [runs]


async def train(job: str, quiet: str) -> int:
    """Train a job on this machine; return the exit code of its run.  Raises if it cannot begin here."""
    if not _HERE:
        raise RuntimeError("this Dask worker was not started by `stallguard fleet worker`")
    return await _HERE[0].train(job, quiet)

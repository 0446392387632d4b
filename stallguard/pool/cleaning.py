"""Removes what jobs of the fleet left on this machine and no job uses any more: a worker can live for years."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection
from pathlib import Path

from stallguard.pool import environments, job_files, unpacking
from stallguard.storage import paths

LOGS = 14 * 86400.0  # s: as long as the code of a job
FETCHED = 86400.0  # s: checkpoints of a run that was killed while it fetched them


def clean(jobs: Collection[str], interpreters: Collection[str]) -> None:
    """Remove what is not used.  `jobs`, `interpreters`: of the runs of this machine.  Raises OSError."""
    now = time.time()
    busy = {job_files.log_of(job) for job in jobs}
    for log in _older(job_files.logs(), now - LOGS):
        if log not in busy:
            log.unlink(missing_ok=True)
            job_files.lock_of(log.stem).unlink(missing_ok=True)
    for left in _older(paths.home() / "fetched", now - FETCHED):
        shutil.rmtree(left, ignore_errors=True)
    unpacking.remove_unused(jobs)
    environments.remove_unused(interpreters)


def _older(folder: Path, than: float) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.stat().st_mtime < than]

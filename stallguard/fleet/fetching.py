"""Brings a published generation to this machine: whole and verified, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from stallguard.fleet import records
from stallguard.fleet.checkpoint_files import digest
from stallguard.fleet.records import Damaged, Generation, StoredFile
from stallguard.fleet.store import Store
from stallguard.storage import private
from stallguard.storage.paths import RunDir


def fetch(store: Store, job: str, generation: Generation, run: RunDir) -> None:
    """Make the directory `run` with the files of a generation, as a run would have left them.

    Raises StoreError, OSError, and Damaged; leaves nothing then.
    """
    private.ensure(run.path.parent)
    private.make(run.path)
    try:
        private.make(run.checkpoints)
        for file in generation.files:
            is_trackers = file.path.startswith(records.TRACKERS)
            target = (run.path if is_trackers else run.checkpoints) / file.path
            _fetch_file(store, records.data_key(job, generation.number, file.name), file, target)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def _fetch_file(store: Store, key: str, file: StoredFile, target: Path) -> None:
    private.ensure(target.parent)
    if not store.get(key, target):
        raise Damaged(f"{file.path} is not in the store")
    target.chmod(private.FILE)
    if target.stat().st_size != file.size or digest(target) != file.digest:
        raise Damaged(f"{file.path} does not match its digest")

"""Brings a published generation to this machine: whole and verified, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

from stallguard.fleet import records
from stallguard.fleet.checkpoint_files import digest
from stallguard.fleet.records import Damaged, Generation, StoredFile
from stallguard.fleet.store import Store
from stallguard.storage import private


def fetch(store: Store, job: str, generation: Generation, folder: Path) -> None:
    """Make `folder` with the files of a generation.  Raises StoreError, OSError, and Damaged; leaves nothing then."""
    private.ensure(folder.parent)
    private.make(folder)
    try:
        for file in generation.files:
            _fetch_file(store, records.data_key(job, generation.number, file.name), file, folder / file.path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _fetch_file(store: Store, key: str, file: StoredFile, target: Path) -> None:
    private.ensure(target.parent)
    if not store.get(key, target):
        raise Damaged(f"{file.path} is not in the store")
    target.chmod(private.FILE)
    if target.stat().st_size != file.size or digest(target) != file.digest:
        raise Damaged(f"{file.path} does not match its digest")

"""A store in a folder that machines share: NFS, SMB, or a local disk.

A file is written under another name, synced and renamed, so it is seen whole or not at all.  What must be exclusive is
a directory with one file in it: a rename onto a directory that is not empty fails, on each of these file systems.  A
hard link would do too, but the SMB client of macOS has none; O_EXCL would show a file before its content.
NFS can repeat a rename that was done already, and answer that the draft does not exist: `create` looks who won.

This module must not follow a symbolic link that it finds as a key.  It leaves the rights of files to the umask: other
machines can have other users.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from stallguard.fleet.store import StoreError

CONTENT = "content"  # the file in the directory of an exclusive key
DRAFTS = ".drafts"
PIECE = 1 << 20


class FolderStore:
    """Implements store.Store."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`.  It must exist: a folder inside a share that is not mounted would be made on the local disk."""
        self.folder, self.url = folder, f"file://{folder}"

    def create(self, key: str, data: bytes) -> bool:
        """See store.Store."""
        with self._errors(key):
            draft, target = self._draft(), self._path(key)
            draft.mkdir()
            try:
                _write(draft / CONTENT, data)
                _sync(draft)
                self._move(draft, target)
            except OSError as error:
                if self._content(target) is None:
                    raise StoreError(f"cannot create {key}: {error.strerror or error}") from error
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            return self._content(target) == data

    def replace(self, key: str, data: bytes) -> None:
        """See store.Store."""
        with self._errors(key), self._draft_file() as draft:
            _write(draft, data)
            self._move(draft, self._path(key))

    def read(self, key: str) -> bytes | None:
        """See store.Store."""
        with self._errors(key):
            return self._content(self._path(key))

    def names(self, folder: str) -> Sequence[str]:
        """See store.Store."""
        with self._errors(folder):
            self._present()
            try:
                return [path.name for path in self._path(folder).iterdir() if path.name != DRAFTS]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def put(self, key: str, file: Path) -> None:
        """See store.Store."""
        with self._errors(key), self._draft_file() as draft:
            with file.open("rb") as source, draft.open("xb") as target:
                shutil.copyfileobj(source, target, PIECE)
                target.flush()
                os.fsync(target.fileno())
            self._move(draft, self._path(key))

    def get(self, key: str, file: Path) -> bool:
        """See store.Store."""
        with self._errors(key):
            self._present()
            try:
                with open(self._path(key), "rb", opener=_no_link) as source, file.open("xb") as target:
                    shutil.copyfileobj(source, target, PIECE)
            except FileNotFoundError:
                return False
            return True

    def remove(self, key: str) -> None:
        """See store.Store."""
        with self._errors(key):
            self._present()
            path = self._path(key)
            if path.is_dir() and not path.is_symlink():
                # Under its name it is there whole, or not at all.
                draft = self._draft()
                with contextlib.suppress(FileNotFoundError):
                    path.rename(draft)
                shutil.rmtree(draft, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        """Return the file of a key.  Raises StoreError for one that leads out: parts can come from the store itself."""
        if key.startswith("/") or ".." in key.split("/"):
            raise StoreError(f"{key!r} is not a key")
        return self.folder / key

    def _content(self, path: Path) -> bytes | None:
        self._present()
        for place in (path, path / CONTENT):
            try:
                with open(place, "rb", opener=_no_link) as file:
                    return file.read()
            except IsADirectoryError:
                continue
            except (FileNotFoundError, NotADirectoryError):
                return None
        return None

    def _present(self) -> None:
        """Raise StoreError or OSError if the folder is away: it must not look like an empty store."""
        try:
            self.folder.stat()
        except FileNotFoundError as error:
            raise StoreError(f"there is no folder {self.folder}; is its share mounted?") from error

    def _draft(self) -> Path:
        self._present()
        drafts = self.folder / DRAFTS
        drafts.mkdir(exist_ok=True)
        return drafts / os.urandom(8).hex()

    @contextlib.contextmanager
    def _draft_file(self) -> Iterator[Path]:
        """Yield the name of a new file; an error leaves nothing behind, also on a disk that is full."""
        draft = self._draft()
        try:
            yield draft
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            raise

    def _move(self, draft: Path, target: Path) -> None:
        """Give a draft its name.  Raises OSError."""
        # One by one, and never the store's own folder: it would be made on the local disk when the share is away.
        for folder in reversed(target.relative_to(self.folder).parents[:-1]):
            (self.folder / folder).mkdir(exist_ok=True)
        draft.rename(target)
        _sync(target.parent)

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{self.folder / key}: {error.strerror or error}") from error


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Make a rename in `folder` survive a loss of power, if the file system can do that."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # SMB syncs no directory
            raise
    finally:
        os.close(descriptor)

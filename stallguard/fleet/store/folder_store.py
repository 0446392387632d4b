"""A store in a folder that machines share: NFS, SMB, or a local disk.

A file is written under another name, synced and renamed, so it is seen whole or not at all.  What must be exclusive is
a directory with one file in it: a rename onto a directory that is not empty fails, on each of these file systems.  A
hard link would do too, but the SMB client of macOS has none; O_EXCL would show a file before its content.
NFS can repeat a rename that was done already, and answer that the draft does not exist: `create` looks who won.

Who can write to the folder is not trusted with the rest of the machine: each step of a key is opened from the directory
above it, by its descriptor, and a symbolic link is an error at each of them.  So nothing outside of the folder is read,
replaced or removed, also if a directory is exchanged for a link meanwhile.

Who cannot write to the folder cannot read what is in it: a file is for its owner alone (0600), and for the group or for
all users if the folder can be written to by them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from stallguard.fleet.store import LinkInStore, StoreError
from stallguard.probe import disk_order

CONTENT = "content"  # the file in the directory of an exclusive key
DRAFTS = ".drafts"
PIECE = 1 << 20
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not be waited for
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderStore:
    """Implements store.Store."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`.  It must exist: a folder inside a share that is not mounted would be made on the local disk."""
        self.folder, self.url = folder, f"file://{folder}"

    def create(self, key: str, data: bytes) -> bool:
        """See store.Store."""
        with self._opened(key) as (place, parts):
            drafts, draft = place.drafts(), _name()
            made = place.folder([draft], drafts, make=True)
            try:
                place.write(CONTENT, made, data)
                _sync(made, disk_order.order)
                place.move(draft, parts)
            except OSError as error:
                if place.content(parts) is None:
                    raise StoreError(f"cannot create {key}: {error.strerror or error}") from error
            finally:
                shutil.rmtree(draft, ignore_errors=True, dir_fd=drafts)
            return place.content(parts) == data

    def replace(self, key: str, data: bytes) -> None:
        """See store.Store."""
        with self._opened(key) as (place, parts), place.draft() as draft:
            place.write(draft, place.drafts(), data)
            place.move(draft, parts)

    def read(self, key: str) -> bytes | None:
        """See store.Store."""
        with self._opened(key) as (place, parts):
            return place.content(parts)

    def names(self, folder: str) -> Sequence[str]:
        """See store.Store."""
        with self._opened(folder) as (place, parts):
            try:
                found = os.listdir(place.folder(parts))  # noqa: PTH208 - of a descriptor
                return [name for name in found if name != DRAFTS]
            except (FileNotFoundError, NotADirectoryError):
                return []

    def versions(self, folder: str) -> Mapping[str, str]:
        """See store.Store.  What is replaced is another file, of another time."""
        found: dict[str, str] = {}
        with self._opened(folder) as (place, parts), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            opened = place.folder(parts)
            for name in os.listdir(opened):  # noqa: PTH208 - of a descriptor
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    about = os.stat(name, dir_fd=opened, follow_symlinks=False)
                    found[name] = f"{about.st_ino} {about.st_mtime_ns}"
        found.pop(DRAFTS, None)
        return found

    def put(self, key: str, file: Path) -> None:
        """See store.Store."""
        with self._opened(key) as (place, parts), place.draft() as draft:
            with file.open("rb") as source, place.new(draft, place.drafts()) as target:
                shutil.copyfileobj(source, target, PIECE)
                target.flush()
                disk_order.order(target.fileno())
            place.move(draft, parts)

    def get(self, key: str, file: Path) -> bool:
        """See store.Store."""
        with self._opened(key) as (place, parts):
            try:
                source = place.file(parts)
            except FileNotFoundError:
                return False
            with source, file.open("xb") as target:
                shutil.copyfileobj(source, target, PIECE)
            return True

    def remove(self, key: str) -> None:
        """See store.Store."""
        with self._opened(key) as (place, parts), contextlib.suppress(FileNotFoundError):
            folder, name = place.folder(parts[:-1]), parts[-1]
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                # Under its name it is there whole, or not at all.
                drafts, draft = place.drafts(), _name()
                os.rename(name, draft, src_dir_fd=folder, dst_dir_fd=drafts)
                shutil.rmtree(draft, ignore_errors=True, dir_fd=drafts)
            else:
                os.unlink(name, dir_fd=folder)

    @contextlib.contextmanager
    def _opened(self, key: str) -> Iterator[tuple[_Opened, list[str]]]:
        """Yield the folder for one operation, and the parts of a key.

        Raises StoreError, also for a key that leads out, because parts can come from the store itself, and if the
        folder is away: it must not look like an empty store.
        """
        parts = key.split("/")
        if key.startswith("/") or not {"", ".", ".."}.isdisjoint(parts):
            raise StoreError(f"{key!r} is not a key")
        try:
            opened = _Opened(self.folder)
        except FileNotFoundError as error:
            raise StoreError(f"there is no folder {self.folder}; is its share mounted?") from error
        except OSError as error:
            raise StoreError(f"{self.folder}: {error.strerror or error}") from error
        try:
            yield opened, parts
        except OSError as error:
            raise StoreError(f"{self.folder / key}: {error.strerror or error}") from error
        finally:
            opened.close()


class _Opened:
    """The folder of a store during one operation: its descriptor, and those of directories below it."""

    def __init__(self, path: Path) -> None:
        """Open the folder; raises OSError.  A link to it is followed: its owner has named it."""
        self._stack = contextlib.ExitStack()
        self._root = self._kept(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        mode = os.fstat(self._root).st_mode
        shared = (0o060 if mode & stat.S_IWGRP else 0) | (0o006 if mode & stat.S_IWOTH else 0)
        self._rights = 0o600 | shared

    def close(self) -> None:
        """Close all descriptors."""
        self._stack.close()

    def _kept(self, descriptor: int) -> int:
        self._stack.callback(os.close, descriptor)
        return descriptor

    def folder(self, parts: Sequence[str], below: int | None = None, *, make: bool = False) -> int:
        """Return the descriptor of a directory below the store's folder or `below`; raises OSError and StoreError.

        `make`: make what is missing, one by one, and never the store's own folder: it would be made on the local disk
        when the share is away.
        """
        found = self._root if below is None else below
        for part in parts:
            try:
                found = self._kept(os.open(part, _FOLDER, dir_fd=found))
            except FileNotFoundError:
                if not make:
                    raise
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, self._rights | (self._rights & 0o444) >> 2, dir_fd=found)
                found = self._kept(os.open(part, _FOLDER, dir_fd=found))
                self._share(found, self._rights | (self._rights & 0o444) >> 2)
            except OSError:
                _refuse_link(part, found)
                raise
        return found

    def drafts(self) -> int:
        """Return the descriptor of the directory of drafts."""
        return self.folder([DRAFTS], make=True)

    @contextlib.contextmanager
    def draft(self) -> Iterator[str]:
        """Yield the name of a new file among the drafts; an error leaves nothing behind, also on a full disk."""
        name = _name()
        try:
            yield name
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self.drafts())
            raise

    def new(self, name: str, folder: int) -> BinaryIO:
        """Return a new file, opened for writing; raises OSError."""
        descriptor = os.open(name, _NEW, self._rights, dir_fd=folder)
        self._share(descriptor, self._rights)
        return os.fdopen(descriptor, "wb")

    def _share(self, descriptor: int, mode: int) -> None:
        """Give a new file the rights that the umask has taken from it; SMB has none to give."""
        if mode & 0o066:
            with contextlib.suppress(OSError):
                kept = os.fstat(descriptor).st_mode & 0o7000  # a folder gives its group to what is made in it
                os.fchmod(descriptor, kept | mode)

    def write(self, name: str, folder: int, data: bytes) -> None:
        """Write a new file; raises OSError."""
        with self.new(name, folder) as file:
            file.write(data)
            file.flush()
            disk_order.order(file.fileno())

    def move(self, draft: str, parts: Sequence[str]) -> None:
        """Give a draft its name; raises OSError."""
        folder = self.folder(parts[:-1], make=True)
        os.rename(draft, parts[-1], src_dir_fd=self.drafts(), dst_dir_fd=folder)
        _sync(folder)

    def file(self, parts: Sequence[str]) -> BinaryIO:
        """Return a file, opened for reading; of a directory, its content.  Raises OSError and StoreError."""
        folder = self.folder(parts[:-1])
        try:
            descriptor = self._kept(os.open(parts[-1], _READ, dir_fd=folder))
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                folder = descriptor
                descriptor = self._kept(os.open(CONTENT, _READ, dir_fd=folder))
        except FileNotFoundError:
            raise
        except OSError:
            _refuse_link(parts[-1], folder)
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{'/'.join(parts)} is no file")
        return os.fdopen(descriptor, "rb", closefd=False)

    def content(self, parts: Sequence[str]) -> bytes | None:
        """Return what a file has, None if there is none."""
        try:
            with self.file(parts) as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _name() -> str:
    return os.urandom(8).hex()


def _refuse_link(name: str, folder: int) -> None:
    """Raise LinkInStore if it is a symbolic link: systems have different errors for one that is not followed."""
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise LinkInStore(f"{name} is a symbolic link, and stallguard makes none in a store and follows none")


def _sync(folder: int, sync: Callable[[int], None] = disk_order.keep) -> None:
    """Make a rename in `folder` survive a loss of power, or `sync` it otherwise, if the file system can do that."""
    try:
        sync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # SMB syncs no directory
            raise

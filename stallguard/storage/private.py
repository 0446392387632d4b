"""Directories and files for their owner alone, with any umask, also if they existed.

A directory gets mode 0700, a file 0600, also with a umask of 0 (all rights for all) or 0777 (no rights).
What is opened for writing is never a symbolic link: in a directory of runs that was copied or shared, another user can
have placed links, and writing through one changes a file elsewhere.  Must not read or interpret files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

DIRECTORY, FILE = 0o700, 0o600
OTHERS = 0o077  # the rights of everybody but the owner
OTHERS_WRITE = 0o022
ROOT = 0


def make(path: Path) -> None:
    """Make one directory.  Raises OSError, FileExistsError if there is anything at `path`."""
    path.mkdir(mode=DIRECTORY)
    if stat.S_IMODE(path.lstat().st_mode) & DIRECTORY != DIRECTORY:  # the umask took rights from the owner
        path.chmod(DIRECTORY)


def ensure(path: Path) -> None:
    """Make a directory and its missing parents; leave what exists as it is.  Raises OSError."""
    for parent in (*reversed(path.parents), path):
        if not parent.is_dir():
            with contextlib.suppress(FileExistsError):  # another process has made it meanwhile
                make(parent)
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def own(path: Path) -> None:
    """Make a directory if it is missing, and take all rights of others from one that exists.

    Raises OSError, PermissionError if it belongs to another user, who could exchange what is in it.  One of root's is
    taken as it is if others cannot exchange what is in it, as in /tmp.
    """
    ensure(path)
    facts = path.stat()
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid == os.geteuid():
        if mode & OTHERS or mode & DIRECTORY != DIRECTORY:
            path.chmod(DIRECTORY | mode & ~0o777)
    elif facts.st_uid != ROOT or not is_safe(path):
        raise PermissionError(1, "it belongs to another user", str(path))


def is_safe(path: Path) -> bool:
    """Return whether no other user can exchange an entry of a directory: others cannot write, or it is sticky.

    Raises OSError.
    """
    facts = path.stat()
    is_trusted = facts.st_uid in (os.geteuid(), ROOT)
    return is_trusted and (not facts.st_mode & OTHERS_WRITE or bool(facts.st_mode & stat.S_ISVTX))


def is_ours_alone(path: Path) -> bool:
    """Return whether `path` is a directory, not a link to one, that only this user can enter."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    is_ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return is_ours and not stat.S_IMODE(facts.st_mode) & OTHERS


def is_ours(path: Path) -> bool:
    """Return whether this user made a file; root trusts each.  Raises OSError."""
    return os.geteuid() in (ROOT, path.lstat().st_uid)


def opener(path: str | Path, flags: int) -> int:
    """Open a file of a run, also for `open(..., opener=opener)`; one that is made is the owner's alone.

    Raises OSError, ELOOP for a symbolic link.
    """
    opened = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE)
    if flags & os.O_CREAT:
        with contextlib.suppress(OSError):  # a file system without rights
            if stat.S_IMODE(os.fstat(opened).st_mode) & FILE != FILE:
                os.fchmod(opened, FILE)
    return opened


def write(path: Path, data: bytes) -> None:
    """Write a whole file; a link of that name is replaced, not followed.  Raises OSError."""
    if path.is_symlink():
        path.unlink()
    with open(path, "wb", opener=opener) as file:
        file.write(data)


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: what was there stays until then.  Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        write(draft, data)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file against other processes of this machine.  Raises OSError."""
    opened = opener(path, os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)

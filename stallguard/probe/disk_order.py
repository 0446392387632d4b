"""What was written is on the disk before what is written later, and what must survive a loss of power does.

On Linux fsync does both.  On macOS it does neither: it hands the data to the drive, which keeps them in its cache and
writes them in any order.  There are two commands of fcntl(2) for it:

    F_BARRIERFSYNC  fsync, then a barrier: what was flushed with fsync on the same device before it, in any file, is on
                    the disk before what follows.  APFS and HFS have it.
    F_FULLFSYNC     fsync, then the drive writes its cache: slower, and it survives.  FAT and UDF have it too.

Sources: fcntl(2) of macOS; the numbers: bsd/sys/fcntl.h of xnu.  xnu passes both to the file system, and one that does
not know them answers ENOTSUP (SMB, NTFS), EINVAL (WebDAV) or ENOTTY (ZFS, a raw device): gh:libuv/libuv/pull/2135.
Public figures of one call, no measurement of ours: 4.5 ms and 19 ms (M1 Pro, gh:cockroachdb/pebble/pull/1851), 5 ms for
F_FULLFSYNC (gh:smol-machines/smolvm/pull/1286).  `scripts/live --only disk` measures them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys

IS_MACOS = sys.platform == "darwin"
BARRIER, FULL = 85, 51  # F_BARRIERFSYNC, F_FULLFSYNC
REFUSALS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY)


def order(descriptor: int) -> None:
    """Have this file or folder, and what was flushed with fsync, on the disk before what is written later.

    Raises OSError.
    """
    _ask(descriptor, (BARRIER, FULL))


def keep(descriptor: int) -> None:
    """Have this file or folder, and what was flushed with fsync, on the disk now.  Raises OSError."""
    _ask(descriptor, (FULL,))


def _ask(descriptor: int, commands: tuple[int, ...]) -> None:
    for command in commands if IS_MACOS else ():
        try:
            fcntl.fcntl(descriptor, command)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
        else:
            return
    os.fsync(descriptor)

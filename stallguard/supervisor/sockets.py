"""Sockets whose names can vanish: a cleaner of temporary files, or a user who tidies up, removes the name alone.

The socket still exists then, and cannot be reached any more: neither `stallguard stop` nor the probe of the next
attempt.  So the listener checks now and then whether the name is still there, and binds it again.  Must not read or
write what goes through.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from stallguard.storage import private

LOOK = 5.0  # seconds between two looks at a name


class Named:
    """A socket bound to `path`; `socket` is another one after each `renew` that returned True."""

    def __init__(self, path: Path, kind: socket.SocketKind, backlog: int = 0, buffer: int = 0) -> None:
        """Bind it.  `backlog`: connections that wait, for streams; `buffer`: bytes wanted for what was not yet read.

        Raises OSError.
        """
        self.path, self._kind, self._backlog, self._buffer = path, kind, backlog, buffer
        self.socket = self._bound()
        self._is = identity(path)

    def _bound(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, self._kind)
        try:
            if self._buffer:
                with contextlib.suppress(OSError):  # a smaller one only loses records, and those are absolute
                    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
            made.bind(str(self.path))
            self.path.chmod(private.FILE)  # the umask can be 0, or 0777
            if self._backlog:
                made.listen(self._backlog)
        except OSError:
            made.close()
            raise
        return made

    def renew(self) -> bool:
        """Bind the name again if it is gone; return whether it was.  Raises OSError if that is not possible."""
        if identity(self.path) == self._is:
            return False
        place = self.path.parent
        with contextlib.suppress(FileExistsError):
            private.ensure(place.parent)
            private.make(place)
        # In /tmp, each user can take the name of a directory that was removed.
        if not private.is_ours_alone(place):
            raise PermissionError(1, "another directory has its name")
        self.path.unlink(missing_ok=True)
        before, self.socket = self.socket, self._bound()
        self._is = identity(self.path)
        before.close()
        return True

    def close(self) -> None:
        """Close it and remove its name."""
        self.socket.close()
        if identity(self.path) == self._is:
            self.path.unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes the file at `path` from a later one of that name; None if there is none."""
    with contextlib.suppress(OSError):
        facts = os.lstat(path)
        return facts.st_dev, facts.st_ino
    return None

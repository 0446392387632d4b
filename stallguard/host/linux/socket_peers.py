"""Who is at the other end of a Unix socket, as the kernel says it: unix(7), SO_PEERCRED and SCM_CREDENTIALS."""

from __future__ import annotations

import socket
import struct
import sys

if sys.platform == "darwin":  # for type checkers, and for tests of the other system
    _PEERCRED, _PASSCRED, _CREDENTIALS_KIND = 17, 16, 2
else:
    _PEERCRED, _PASSCRED, _CREDENTIALS_KIND = socket.SO_PEERCRED, socket.SO_PASSCRED, socket.SCM_CREDENTIALS
_CREDENTIALS = struct.Struct("iII")  # ucred: pid, uid, gid


def peer_user(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end of a stream; None if the system does not say."""
    try:
        data = connection.getsockopt(socket.SOL_SOCKET, _PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(data)[1])
    except (OSError, struct.error):
        return None


def name_senders(receiver: socket.socket) -> None:
    """Have the kernel say the sender of each datagram.  Raises OSError."""
    receiver.setsockopt(socket.SOL_SOCKET, _PASSCRED, 1)


def receive(receiver: socket.socket, size: int) -> tuple[bytes, int | None]:
    """Return a datagram and the user of its sender, None if the system does not say.  Raises OSError.

    There is room for credentials alone, so descriptors that a process sends are not installed in this process.
    """
    data, extras, _flags, _address = receiver.recvmsg(size, socket.CMSG_SPACE(_CREDENTIALS.size))
    for level, kind, value in extras:
        if (level, kind) == (socket.SOL_SOCKET, _CREDENTIALS_KIND) and len(value) >= _CREDENTIALS.size:
            return data, int(_CREDENTIALS.unpack_from(value)[1])
    return data, None

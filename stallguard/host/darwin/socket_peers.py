"""Who is at the other end of a Unix socket, as the kernel says it: unix(4), LOCAL_PEERCRED.

A datagram has no sender in macOS.  What keeps others out there is the directory of the socket (0700) and the token.
"""

from __future__ import annotations

import socket
import struct

# <sys/un.h>: SOL_LOCAL, LOCAL_PEERCRED; <sys/ucred.h>: xucred has version, uid, number of groups and 16 groups.
_SOL_LOCAL, _LOCAL_PEERCRED, _VERSION = 0, 1, 0
_XUCRED = struct.Struct("=IIh2x16I")
_HEAD = struct.Struct("=II")


def peer_user(connection: socket.socket) -> int | None:
    """Return the user of the process at the other end of a stream; None if the system does not say."""
    try:
        return user_in(connection.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED.size))
    except OSError:
        return None


def user_in(data: bytes) -> int | None:
    """Return the user in an xucred; None if it is of another version, or cut short."""
    if len(data) < _HEAD.size:
        return None
    version, user = _HEAD.unpack_from(data)
    return int(user) if version == _VERSION else None


def name_senders(_receiver: socket.socket) -> None:
    """Do nothing: macOS does not say the sender of a datagram."""


def receive(receiver: socket.socket, size: int) -> tuple[bytes, int | None]:
    """Return a datagram and the user of its sender: None, the system does not say.  Raises OSError."""
    return receiver.recv(size), None

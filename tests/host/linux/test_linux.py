"""What takes one or two calls of Linux: who is at the other end of a socket, and room on a disk."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from stallguard.host import system

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="calls Linux")


def test_the_user_at_the_other_end_of_a_stream_is_known() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert system.peer_user(ours) == os.geteuid()


def test_a_datagram_comes_with_its_sender_once_that_was_asked_for() -> None:
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with receiver, sender:
        sender.send(b"before")
        assert system.receive(receiver, 100) == (b"before", None)
        system.name_senders(receiver)
        sender.send(b"after")
        assert system.receive(receiver, 100) == (b"after", os.geteuid())


def test_reserved_room_does_not_change_the_size_of_a_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        if not system.reserve(file.fileno(), 0, 1 << 20):
            pytest.skip("this file system cannot reserve")
        facts = os.fstat(file.fileno())
    assert (facts.st_size, facts.st_blocks * 512 >= 1 << 20) == (0, True)

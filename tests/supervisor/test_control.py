"""The control socket answers whoever asks properly, and survives whoever does not."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard import paths
from stallguard.core.events import Asked, Event
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.supervisor.control import Control, ask


class Desk:
    def __init__(self, place: Path) -> None:
        self.posted: list[Event] = []
        status = {"schema": 1, "state": "x"}
        self.control = Control(place / "control", self.posted.append, time.monotonic, lambda: status)
        self.path = str(self.control.path)


@pytest.fixture
def desk() -> Iterator[Desk]:
    place = paths.socket_dir("/tmp")
    made = Desk(place)
    yield made
    made.control.close()
    shutil.rmtree(place)


def test_status_is_answered_with_the_snapshot(desk: Desk) -> None:
    assert ask(desk.path, "status") == {"schema": 1, "state": "x"}


def test_a_wish_becomes_an_event(desk: Desk) -> None:
    assert ask(desk.path, "mute", "60") == {"schema": 1, "ok": True}

    [event] = desk.posted
    assert isinstance(event, Asked)
    assert (event.verb, event.argument) == ("mute", "60")


def test_an_unknown_verb_is_refused_and_posts_nothing(desk: Desk) -> None:
    assert ask(desk.path, "explode")["ok"] is False
    assert desk.posted == []


@pytest.mark.parametrize("span", ["soon", "nan", "inf", "-1"])
def test_a_span_that_is_none_is_refused_and_posts_nothing(desk: Desk, span: str) -> None:
    answer = ask(desk.path, "mute", span)
    assert (answer["ok"], answer["why"]) == (False, f"mute wants seconds, not {span!r}")
    assert desk.posted == []


@pytest.mark.parametrize(
    "rubbish", [b"", b"\xff\xfe\n", b"{" * 5000, b'{"verb": 3}\n', b'{"verb": "\xff"}\n']
)
def test_rubbish_does_not_silence_it(desk: Desk, rubbish: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(desk.path)
        client.sendall(rubbish)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(5)
        client.recv(100)

    assert ask(desk.path, "status")["state"] == "x"


def test_nobody_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StallguardError, match="does not answer") as caught:
        ask(str(tmp_path / "none"), "status")

    assert caught.value.code == NO_SUCH_RUN

"""The control socket answers whoever asks properly, and survives whoever does not."""

from __future__ import annotations

import concurrent.futures
import contextlib
import shutil
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.core.events import Event, UserCommand
from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.storage import paths
from stallguard.supervisor.control import MOST_CLIENTS, PATIENCE, Control, ask
from stallguard.worker import living

LONG = 30.0  # seconds; only a broken test waits that long


class Desk:
    def __init__(self, place: Path) -> None:
        self.posted: list[Event] = []
        self.troubles: list[str] = []
        self.fails = False
        self.control = Control(
            place / "control", self.posted.append, time.monotonic, self._status, trouble=self.troubles.append
        )
        self.path = str(self.control.path)

    def _status(self) -> dict[str, object]:
        if self.fails:
            raise ZeroDivisionError
        return {"schema": 1, "state": "x"}

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.path)
        client.settimeout(LONG)
        return client


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
    assert isinstance(event, UserCommand)
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
    "rubbish",
    [
        b"", b"\xff\xfe\n", b"{" * 5000, b'{"verb": 3}\n', b'{"x":' + b"[" * 4000 + b"\n", b'{"verb": "\xff"}\n',
    ],
)  # fmt: skip
def test_rubbish_does_not_silence_it(desk: Desk, rubbish: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(desk.path)
        client.sendall(rubbish)
        client.shutdown(socket.SHUT_WR)
        client.settimeout(5)
        client.recv(100)

    assert ask(desk.path, "status")["state"] == "x"


def test_a_missing_process_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StallguardError, match="does not answer") as caught:
        ask(str(tmp_path / "none"), "status")

    assert caught.value.code == NO_SUCH_RUN


def test_clients_that_are_slow_delay_no_other(desk: Desk) -> None:
    slow = [desk.connect() for _ in range(8)]
    for client in slow:
        client.sendall(b"{")
    began = time.monotonic()
    assert ask(desk.path, "stop") == {"schema": 1, "ok": True}
    assert time.monotonic() - began < PATIENCE * len(slow) / 2, "they were served one after the other"
    for client in slow:
        client.close()


@pytest.mark.waits
def test_a_client_has_one_deadline_however_it_talks(desk: Desk) -> None:
    with desk.connect() as client:
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            while time.monotonic() - began < LONG:
                client.sendall(b" ")
                time.sleep(0.05)
        assert time.monotonic() - began < LONG / 2


def test_a_client_that_takes_no_answer_delays_no_other(desk: Desk) -> None:
    with desk.connect() as deaf:
        deaf.sendall(b'{"verb": "status"}\n')
        assert ask(desk.path, "status")["state"] == "x"


def test_more_clients_than_there_is_room_for_leave_it_alive(desk: Desk) -> None:
    crowd = [desk.connect() for _ in range(MOST_CLIENTS * 2)]
    assert ask(desk.path, "status")["state"] == "x"
    for client in crowd:
        client.close()
    assert threading.active_count() + len(living()) < MOST_CLIENTS


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse a connection when the queue is full")
def test_a_run_whose_queue_is_full_is_asked_once_there_is_room(tmp_path: Path) -> None:
    path = str(tmp_path / "control")
    with contextlib.ExitStack() as opened, concurrent.futures.ThreadPoolExecutor() as pool:
        server = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        server.bind(path)
        server.listen(0)
        crowd = []
        with pytest.raises(BlockingIOError):  # noqa: PT012 - until one is refused
            while True:
                crowd.append(opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
                crowd[-1].setblocking(False)
                crowd[-1].connect(path)
        for client in crowd:
            client.close()
        answer = pool.submit(ask, path, "status")
        with pytest.raises(concurrent.futures.TimeoutError):
            answer.result(0.1)
        while not answer.done():
            accepted = opened.enter_context(server.accept()[0])
            if accepted.recv(1000):
                accepted.sendall(b'{"ok": true}\n')
                assert answer.result() == {"ok": True}


def test_an_error_of_our_own_costs_one_answer_and_is_counted_and_said_once(desk: Desk) -> None:
    desk.fails = True
    assert ask(desk.path, "status")["ok"] is False
    assert ask(desk.path, "status")["ok"] is False
    desk.fails = False
    assert ask(desk.path, "status")["state"] == "x"
    assert desk.control.failed == 2
    [said] = desk.troubles
    assert "ZeroDivisionError" in said

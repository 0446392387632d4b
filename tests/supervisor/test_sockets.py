"""Sockets whose names were removed under a living run are bound again."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.core.events import Heartbeat, ProbeNote, ProcessLeft
from stallguard.errors import StallguardError
from stallguard.storage import paths
from stallguard.supervisor import control, heartbeats
from stallguard.supervisor.control import Control, ask
from tests.supervisor.listening import TOKEN, Ear, Probe


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(heartbeats, "LOOK", 0.2)
    monkeypatch.setattr(control, "LOOK", 0.2)
    made = paths.socket_dir("/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.waits
def test_a_probe_that_begins_after_the_directory_was_swept_is_listened_to(place: Path, tmp_path: Path) -> None:
    ear = Ear(place, tmp_path)
    early = ear.probe()
    early.send(beats=1)
    first = ear.next()
    shutil.rmtree(place)
    note = ear.next(ProbeNote)
    late = ear.probe()
    late.send(beats=2)
    second = ear.next()
    while isinstance(second, Heartbeat) and second.pid != late.pid:
        second = ear.next()
    ear.beats.close()
    for probe in (early, late):
        probe.end()

    assert isinstance(first, Heartbeat)
    assert isinstance(note, ProbeNote)
    assert "was removed" in note.text
    assert isinstance(second, Heartbeat)
    assert second.beats == 2
    assert place.stat().st_mode & 0o777 == 0o700


@pytest.mark.waits
def test_a_socket_that_cannot_be_bound_again_is_reported_once(place: Path, tmp_path: Path) -> None:
    ear = Ear(place, tmp_path)
    shutil.rmtree(place)
    place.write_text("in the way")
    note = ear.next(ProbeNote)
    time.sleep(0.7)
    ear.beats.exited(0, None)
    rest = ear.until_exit()
    ear.beats.close()
    place.unlink()

    assert isinstance(note, ProbeNote)
    assert "followed by its page alone" in note.text
    assert not any(isinstance(event, ProbeNote) for event in rest)


@pytest.mark.waits
def test_a_program_that_finds_no_socket_is_followed_by_its_page(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins after the directory was swept, and the socket cannot be bound again."""
    monkeypatch.setattr(heartbeats, "PAGE_AFTER", 0.4)
    ear = Ear(place, tmp_path)
    shutil.rmtree(place)
    place.write_text("in the way")
    elsewhere = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    elsewhere.bind(str(tmp_path / "unheard"))
    of_before, mine = (Probe(tmp_path / "unheard", tmp_path) for _ in range(2))
    of_before.store(beats=9, changes=9, token=TOKEN + 1)
    mine.store(beats=3, changes=3)
    first = ear.next()
    mine.store(beats=5, changes=5)
    second = ear.next()
    asked = ear.beats.ask("stop")
    mine.end()
    left = ear.next(ProcessLeft)
    time.sleep(2.0)  # its page is still there, and is no new program
    ear.beats.exited(0, None)
    rest = ear.until_exit()
    ear.beats.close()
    of_before.end()
    elsewhere.close()
    place.unlink()

    assert isinstance(first, Heartbeat)
    assert (first.pid, first.beats, first.page) == (mine.pid, 3, True)
    assert isinstance(second, Heartbeat)
    assert (second.pid, second.beats) == (mine.pid, 5)
    assert asked
    assert isinstance(left, ProcessLeft)
    assert left.pid == mine.pid
    assert not any(isinstance(event, Heartbeat) for event in rest)


@pytest.mark.waits
def test_a_program_that_finds_no_socket_and_stops_at_once_is_followed_too(place: Path, tmp_path: Path) -> None:
    """It holds the interpreter's lock from its first moments on, so the stamp of its page stays what it was."""
    ear = Ear(place, tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as elsewhere:
        elsewhere.bind(str(tmp_path / "unheard"))
        mine = Probe(tmp_path / "unheard", tmp_path)
        mine.store(sent_ns=time.monotonic_ns() - int(2.2e9 * heartbeats.PAGE_AFTER))
        first = ear.next()
        ear.beats.close()
        mine.end()

    assert isinstance(first, Heartbeat)
    assert (first.pid, first.page) == (mine.pid, True)


@pytest.mark.parametrize(("code", "how"), [(0, []), (-9, ["vanished"])])
def test_one_that_could_not_say_goodbye_is_killed_only_if_its_attempt_was(
    code: int, how: list[str], place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "PAGE_AFTER", 0.4)
    ear = Ear(place, tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as elsewhere:
        elsewhere.bind(str(tmp_path / "unheard"))
        mine = Probe(tmp_path / "unheard", tmp_path)
        mine.store(beats=3, changes=3)
        ear.next()
        mine.end()
        ear.beats.exited(code, None)
        rest = ear.until_exit()
        ear.beats.close()

    assert [event.how for event in rest if isinstance(event, ProcessLeft)] == how


def test_an_order_reaches_a_run_whose_socket_was_removed(place: Path) -> None:
    desk = Control(place / "control", lambda _: None, time.monotonic, lambda: {"state": "running"})
    (place / "control").unlink()
    until, answer = time.monotonic() + 20, None
    while answer is None and time.monotonic() < until:
        try:
            answer = ask(str(desk.path), "status")
        except StallguardError:
            time.sleep(0.05)
    desk.close()

    assert answer == {"state": "running"}

"""Sockets whose names were removed under a living run are bound again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard import paths
from stallguard.core.events import Heard, Noted
from stallguard.errors import StallguardError
from stallguard.supervisor import beats, control
from stallguard.supervisor.control import Control, ask
from tests.supervisor.listening import Ear


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(beats, "LOOK", 0.2)
    monkeypatch.setattr(control, "LOOK", 0.2)
    made = paths.socket_dir("/tmp")
    yield made
    shutil.rmtree(made, ignore_errors=True)


def test_a_probe_that_begins_after_the_directory_was_swept_is_listened_to(
    place: Path, tmp_path: Path
) -> None:
    ear = Ear(place, tmp_path)
    early = ear.probe()
    early.send(beats=1)
    first = ear.next()
    shutil.rmtree(place)
    note = ear.next(Noted)
    late = ear.probe()
    late.send(beats=2)
    second = ear.next()
    while isinstance(second, Heard) and second.pid != late.pid:
        second = ear.next()
    ear.beats.close()
    for probe in (early, late):
        probe.end()

    assert isinstance(first, Heard)
    assert isinstance(note, Noted)
    assert "was removed" in note.text
    assert isinstance(second, Heard)
    assert second.beats == 2
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_socket_that_cannot_be_bound_again_is_told_once(place: Path, tmp_path: Path) -> None:
    ear = Ear(place, tmp_path)
    shutil.rmtree(place)
    place.write_text("in the way")
    note = ear.next(Noted)
    time.sleep(0.7)
    ear.beats.exited(0, None)
    rest = ear.until_exit()
    ear.beats.close()
    place.unlink()

    assert isinstance(note, Noted)
    assert "guarded from outside" in note.text
    assert not any(isinstance(event, Noted) for event in rest)


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

"""A launchd of our own on PATH, and a job to put into it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

import pytest

from stallguard.agent.job import AgentJob, Schedule
from stallguard.agent.launchd import Launchd
from stallguard.agent.service_manager import LAUNCHD, ToolAnswer, places
from tests.agent.fake_launchctl import Fake

FAKE = Path(__file__).with_name("fake_launchctl.py")


class FakeLaunchd:
    """The fake's state, to read and to set."""

    def __init__(self, place: Path) -> None:
        self.place = place

    @property
    def state(self) -> dict:
        file = self.place / "state.json"
        return json.loads(file.read_text()) if file.exists() else {"jobs": {}}

    def set(self, **knobs) -> None:
        (self.place / "state.json").write_text(json.dumps(self.state | knobs))

    def ask(self, words) -> ToolAnswer:
        """Answer as the program would, without starting one."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = Fake(self.place).call(list(words))
        return ToolAnswer(code, out.getvalue())

    @property
    def calls(self) -> list[str]:
        """The verbs that launchctl was called with, `print`s in a row once."""
        file = self.place / "calls.txt"
        verbs = [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []
        return [verb for at, verb in enumerate(verbs) if at == 0 or verb != verbs[at - 1]]


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A launchd that is asked through a program `launchctl` on PATH."""
    programs, place = tmp_path / "bin", tmp_path / "launchd"
    programs.mkdir()
    place.mkdir()
    launchctl = programs / "launchctl"
    launchctl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "$@"\n')
    launchctl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_LAUNCHD", str(place))
    return FakeLaunchd(place)


@pytest.fixture
def home(tmp_path):
    """A home with a project in it."""
    (tmp_path / "home" / "train").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def manager(home, fake):
    """launchd's verbs for user 501, without pauses."""
    return Launchd(places(LAUNCHD, {"HOME": str(home)}), 501, fake.ask, sleep=lambda _: None)


@pytest.fixture
def asking(home, fake):
    """The same, by way of the program on PATH."""
    return Launchd(places(LAUNCHD, {"HOME": str(home)}), 501, sleep=lambda _: None)


@pytest.fixture
def job(home):
    """A nightly job."""
    return AgentJob(
        name="night",
        python=sys.executable,
        run=("--", str(home / "train" / "train.py"), "--epochs", "200"),
        cwd=str(home / "train"),
        log=str(places(LAUNCHD, {"HOME": str(home)}).log("night")),
        schedule=Schedule(at=("23:00",)),
        env={"PATH": "/usr/bin:/bin"},
    )

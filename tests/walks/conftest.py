"""The walk's modules, and a Mac whose launchd is ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

import stallguard.cli.agent as verbs
from stallguard.agent.launchd import Launchd
from stallguard.agent.service_manager import LAUNCHD, places
from stallguard.errors import StallguardError
from tests.agent.living_launchd import LivingLaunchd

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def walks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "walks"))


@pytest.fixture
def launchd(tmp_path):
    """A launchd with real processes."""
    place = tmp_path / "launchd"
    place.mkdir()
    living = LivingLaunchd(place)
    yield living
    living.close()


@pytest.fixture
def scene(tmp_path, monkeypatch, launchd):
    """A scene at a Mac of user 501; `scene.told` has what was said, `scene.answers` what other tools say."""
    from mac.scene import Said, Scene

    absent = Said(127, "no such program", 0.0)

    user, home = tmp_path / "user", tmp_path / "user" / "walk"
    (user / "Documents").mkdir(parents=True)
    home.mkdir()
    env = {"HOME": str(user), "STALLGUARD_HOME": str(home / "kept"), "PYTHONPATH": str(ROOT)}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home)
    own = Launchd(places(LAUNCHD, {"HOME": str(user)}), 501, launchd.ask)
    monkeypatch.setattr(verbs, "own_system", lambda: LAUNCHD)
    monkeypatch.setattr(verbs, "manager", lambda _system, _env: own)

    def agent(words) -> Said:
        result = CliRunner().invoke(verbs.command, words)
        if isinstance(result.exception, StallguardError):
            return Said(result.exception.code, "\n".join(result.exception.lines()), 0.0)
        return Said(result.exit_code, result.output, 0.0)

    def run(words, seconds, env, cwd) -> Said:
        if words[0] == "launchctl":
            return Said(*launchd.ask(words[1:]), 0.0)
        if "-file" in words[:-1] and words[-1] not in made.answers and "-mayDie" in made.answers:
            Path(words[-1]).write_text(made.answers["-mayDie"].text)  # `sample`: its report is not what it prints
            return Said(0, "Sampling process for 1 second", 1.0)
        return agent(words[5:]) if words[3:5] == ("stallguard", "agent") else made.answers.get(words[-1], absent)

    announced = []
    made = Scene(home, os.environ, announced.append, run)
    made.uid, made.announced, made.answers = 501, announced, {}
    return made

"""A settings file that is changed while a run goes on."""

from __future__ import annotations

import pytest

from stallguard import config


@pytest.fixture
def project(tmp_path):
    (tmp_path / "stallguard.toml").write_text("stop.grace = '10s'\n")
    return tmp_path


@pytest.fixture
def settings(project):
    def load():
        return config.load({"stop.batch_wait": "7s"}, {"HOME": "/nowhere"}, project)

    return config.read(load)


def write(project, text: str) -> None:
    (project / "stallguard.toml").write_text(text)


def test_what_can_change_holds_from_now_on_and_what_cannot_is_refused_once(project, settings):
    write(project, "stop.grace = '30s'\nrun.python = '/x'\n")

    assert settings.renew() == [
        "stop.grace is now 30s, from now on",
        "run.python is now /x: that holds from the next run on",
    ]
    assert (settings.config.stop.grace, settings.config.run.python) == (30.0, "")
    write(project, "stop.grace = '40s'\nrun.python = '/x'\n")
    assert settings.renew() == ["stop.grace is now 40s, from now on"]


def test_an_option_still_outweighs_the_file(project, settings):
    write(project, "stop.batch_wait = '1s'\n")
    settings.renew()
    assert settings.config.stop.batch_wait == 7.0


def test_a_mistake_leaves_everything_as_it_was(project, settings):
    write(project, "stop.grase = 3\n")
    said = settings.renew()
    assert len(said) == 1
    assert "did not change" in said[0]
    assert "stop.grace?" in said[0]
    assert settings.config.stop.grace == 10.0


def test_a_file_nested_too_deep_ends_no_watching(project, settings):
    write(project, "x = " + "[" * 100_000)
    said = settings.renew()
    assert len(said) == 1
    assert "did not change" in said[0]
    write(project, "stop.grace = '30s'\n")
    assert settings.renew() == ["stop.grace is now 30s, from now on"]


def test_an_error_of_our_own_ends_no_watching(settings):
    def broken():
        raise KeyError("x")

    settings.load = broken
    assert settings.renew() == ["the settings did not change: KeyError: 'x'"]


def test_a_touch_changes_nothing(project, settings):
    (project / "stallguard.toml").touch()
    assert settings.renew() == []


def test_a_removed_file_means_the_defaults(project, settings):
    (project / "stallguard.toml").unlink()
    assert settings.renew() == []
    assert settings.config.stop.grace == config.Config().stop.grace

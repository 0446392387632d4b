"""Where the files of jobs are, and the program of a service manager that is missing or silent."""

from __future__ import annotations

import pytest

from stallguard.agent.service_manager import LAUNCHD, SYSTEMD, places
from stallguard.errors import StallguardError


def refused(action, *arguments) -> StallguardError:
    with pytest.raises(StallguardError) as caught:
        action(*arguments)
    return caught.value


def said(error: StallguardError) -> str:
    return "\n".join(error.lines())


def test_a_silent_launchctl_is_given_up(fake, asking, tmp_path, monkeypatch):
    (tmp_path / "bin" / "launchctl").write_text("#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr("stallguard.agent.launchd.PATIENCE", 0.2)
    assert "does not answer" in said(refused(asking.ready))


def test_without_launchctl_the_error_names_the_way_out(home, tmp_path, monkeypatch, asking):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "agent show" in said(refused(asking.ready))


def test_the_files_of_jobs_are_where_each_system_looks_for_them(tmp_path):
    mac = places(LAUNCHD, {"HOME": "/Users/me"})
    assert str(mac.definition("night")) == "/Users/me/Library/LaunchAgents/com.stallguard.night.plist"
    linux = places(SYSTEMD, {"HOME": "/home/me", "XDG_CONFIG_HOME": "relative", "XDG_STATE_HOME": str(tmp_path)})
    assert str(linux.timer("night")) == "/home/me/.config/systemd/user/stallguard-night.timer"
    assert linux.log("night") == tmp_path / "stallguard/log/night.log"


def test_the_installed_jobs_are_those_with_a_definition(tmp_path):
    own = places(SYSTEMD, {"HOME": str(tmp_path)})
    own.definitions.mkdir(parents=True)
    for name in ("stallguard-b.service", "stallguard-a.service", "stallguard-c.timer", "other.service"):
        (own.definitions / name).touch()
    assert own.names() == ["a", "b"]

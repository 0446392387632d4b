"""Each system has its service manager."""

from __future__ import annotations

import pytest

from stallguard.agent import manager
from stallguard.agent.launchd import Launchd
from stallguard.agent.service_manager import own_system
from stallguard.agent.systemd import Systemd


@pytest.mark.parametrize(("platform", "kind"), [("darwin", Launchd), ("linux", Systemd)])
def test_each_system_has_its_service_manager(platform, kind):
    own = manager(own_system(platform), {"HOME": "/home/me"})
    assert isinstance(own, kind)
    assert own.places.logs.is_relative_to("/home/me")

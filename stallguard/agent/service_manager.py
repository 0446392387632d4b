"""Which service manager this machine has.

Must not call it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from stallguard.agent.launchd import Launchd
from stallguard.agent.manager_protocol import LAUNCHD, SYSTEMD, Manager, Places, places
from stallguard.agent.systemd import Systemd


def own_system(platform: str = sys.platform) -> str:
    """Return launchd or systemd."""
    return LAUNCHD if platform == "darwin" else SYSTEMD


def manager(system: str, env: Mapping[str, str]) -> Manager:
    """Return the verbs for `system`, for the current user."""
    where = own_places(system, env)
    return Launchd(where, os.getuid()) if system == LAUNCHD else Systemd(where)


def own_places(system: str, env: Mapping[str, str]) -> Places:
    """Return where the files of jobs are for the current user."""
    return places(system, env, Path(env.get("HOME") or Path.home()))

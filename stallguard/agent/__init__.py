"""Overnight jobs: launchd agents on macOS, systemd user units on Linux, under one set of verbs.

`job` is the value.  `launchd` and `systemd` make its text and manage installed jobs, `launchctl_answers` parses what
launchctl says, `preflight` refuses jobs that would fail, `due_starts` decides what a start means, `runner` is what an
installed job executes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from stallguard.agent.service_manager import LAUNCHD, Manager, places


def manager(system: str, env: Mapping[str, str]) -> Manager:
    """Return the verbs for `system`, for the current user."""
    if system == LAUNCHD:
        from stallguard.agent.launchd import Launchd

        return Launchd(places(system, env), os.getuid())
    from stallguard.agent.systemd import Systemd

    return Systemd(places(system, env))

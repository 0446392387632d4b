"""What the machine is set to do when it is not used, and which GPUs it reports.

Asked once, before a night, never while a run goes on.  Must not judge.
"""

from __future__ import annotations

from stallguard import host
from stallguard.host.types import Preferences, Sleep


def preferences() -> Preferences:
    """Ask the system.  Takes up to some seconds on macOS, which runs two tools."""
    return Preferences(sleep(), host.part("preferences").gpus(), wakes())


def sleep() -> Sleep | None:
    """Return how the machine goes to sleep by itself; None if the system does not say."""
    found: Sleep | None = host.part("preferences").sleep()
    return found


def wakes() -> tuple[str, ...]:
    """Return the times of day at which the machine wakes by itself each day; none if the system does not say."""
    found: tuple[str, ...] = host.part("preferences").wakes()
    return found

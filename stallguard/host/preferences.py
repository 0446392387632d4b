"""What the machine is set to do when it is not used, and which GPUs it reports.

The values, and one function for both systems; asked once, before a night, never while a run goes on.  Must not
judge.
"""

from __future__ import annotations

import msgspec

from stallguard import host


class Sleep(msgspec.Struct, frozen=True):
    """How the machine goes to sleep by itself.  None: not known."""

    after: float | None = None  # seconds of idleness; 0 is never
    prevented_by: tuple[str, ...] = ()  # programs that keep it awake now
    low_power: bool | None = None  # set to save power at the cost of speed


class Gpu(msgspec.Struct, frozen=True):
    """A GPU as the system lists it."""

    name: str
    cores: int | None = None
    virtual: bool = False  # a virtual machine's: it shows a screen and cannot compute


class Preferences(msgspec.Struct, frozen=True):
    """All of it; None: the system did not say."""

    sleep: Sleep | None = None
    gpus: tuple[Gpu, ...] | None = None
    wakes: tuple[str, ...] = ()  # times of day at which it wakes by itself, each day


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

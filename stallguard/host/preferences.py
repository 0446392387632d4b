"""What the machine is set to do when nobody touches it, and which GPUs it says it has.

The values, and one function for both systems; asked once, before a night, never while a run goes on.  May not
judge.
"""

from __future__ import annotations

import sys

import msgspec


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
    """All of it; None: the system did not tell."""

    sleep: Sleep | None = None
    gpus: tuple[Gpu, ...] | None = None


def preferences() -> Preferences:
    """Ask the system.  Takes up to some seconds on macOS, where two tools are run."""
    if sys.platform == "darwin":
        from stallguard.host import darwin_preferences as here
    else:
        from stallguard.host import linux_preferences as here
    return Preferences(here.sleep(), here.gpus())

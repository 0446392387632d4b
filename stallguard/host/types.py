"""Values that both systems return.  None: the system did not say."""

from __future__ import annotations

import msgspec


class Sleep(msgspec.Struct, frozen=True):
    """How the machine goes to sleep by itself.  None: not known."""

    after: float | None = None  # seconds of idleness; 0 is never
    prevented_by: tuple[str, ...] = ()  # programs that keep it awake now
    low_power: bool | None = None  # set to save power at the cost of speed


class ListedGpu(msgspec.Struct, frozen=True):
    """A GPU as the system lists it."""

    name: str
    cores: int | None = None
    virtual: bool = False  # a virtual machine's: it shows a screen and cannot compute


class Preferences(msgspec.Struct, frozen=True):
    """All of it; None: the system did not say."""

    sleep: Sleep | None = None
    gpus: tuple[ListedGpu, ...] | None = None
    wakes: tuple[str, ...] = ()  # times of day at which it wakes by itself, each day

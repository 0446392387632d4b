"""The machine of a simulation: what is read of its device, its memory and the machine as a whole."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.readings import Device, Machine, Memory, Reading

EVERY = {"memory": 2.0, "device": 2.0, "machine": 5.0}  # seconds between two readings


class System:
    """The newest readings; None is not read."""

    def __init__(self, now: float) -> None:
        self.device: Device | None = None
        self.memory: Memory | None = None
        self.machine: Machine | None = None
        self.swapped = 0.0  # bytes a second
        self._read_at = dict.fromkeys(EVERY, now)

    def set(self, name: str, value: object) -> bool:
        """Set an attribute, or a field of a reading by its name with the prefix device_, memory_ or machine_."""
        owner, _, part = name.partition("_")
        if name in vars(self):
            setattr(self, name, value)
        elif owner in EVERY:
            setattr(self, owner, replace(getattr(self, owner), **{part: value}))
        else:
            return False
        return True

    def pass_time(self, now: float, seconds: float) -> list[Reading]:
        """Let `seconds` pass; return the readings that are due."""
        if self.memory is not None and self.memory.swap_outs is not None:
            self.memory = replace(self.memory, swap_outs=int(self.memory.swap_outs + self.swapped * seconds))
        due = [name for name, every in EVERY.items() if now - self._read_at[name] >= every - 1e-9]
        self._read_at |= dict.fromkeys(due, now)
        return [reading for name in due if (reading := getattr(self, name)) is not None]

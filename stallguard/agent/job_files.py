"""Where the files of jobs are, on each system.

Builds paths; must not create or read files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from stallguard.agent.job import label, unit

LAUNCHD, SYSTEMD = "launchd", "systemd"


class Places(NamedTuple):
    """`definitions`: what the service manager reads; `logs`: stallguard's own messages, one file per job."""

    system: str
    definitions: Path
    logs: Path

    def definition(self, name: str) -> Path:
        """Return the property list or the service of a job."""
        file = f"{label(name)}.plist" if self.system == LAUNCHD else f"{unit(name)}.service"
        return self.definitions / file

    def timer(self, name: str) -> Path:
        """Return the timer of a job (systemd)."""
        return self.definitions / f"{unit(name)}.timer"

    def log(self, name: str) -> Path:
        """Return the log of a job."""
        return self.logs / f"{name}.log"

    def names(self) -> list[str]:
        """Return the names of the jobs that have a definition here."""
        first, _, last = self.definition("\n").name.partition("\n")
        found = self.definitions.glob(f"{first}*{last}")
        return sorted(path.name.removeprefix(first).removesuffix(last) for path in found)


def places(system: str, env: Mapping[str, str], home: Path) -> Places:
    """Return the places of `system` for the user with this home and environment."""
    if system == LAUNCHD:
        library = home / "Library"
        return Places(LAUNCHD, library / "LaunchAgents", library / "Logs" / "stallguard")
    # As systemd: a relative one is ignored.
    config, state = Path(env.get("XDG_CONFIG_HOME", "")), Path(env.get("XDG_STATE_HOME", ""))
    config = config if config.is_absolute() else home / ".config"
    state = state if state.is_absolute() else home / ".local" / "state"
    return Places(SYSTEMD, config / "systemd" / "user", state / "stallguard" / "log")

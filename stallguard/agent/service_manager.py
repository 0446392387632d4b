"""What both service managers share: their verbs as a protocol, where the files of jobs are, and how a tool is asked.

A tool that is missing or hangs is reported as an error that a user can act upon.  Must not create or read files, nor
interpret what a tool prints.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from stallguard.agent.job import AgentJob, label, unit
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.host import tool

LAUNCHD, SYSTEMD = "launchd", "systemd"


def own_system(platform: str = sys.platform) -> str:
    """Return launchd or systemd."""
    return LAUNCHD if platform == "darwin" else SYSTEMD


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


def places(system: str, env: Mapping[str, str]) -> Places:
    """Return the places of `system` for the user with this environment."""
    home = Path(env.get("HOME") or Path.home())
    if system == LAUNCHD:
        library = home / "Library"
        return Places(LAUNCHD, library / "LaunchAgents", library / "Logs" / "stallguard")
    # As systemd: a relative one is ignored.
    config, state = Path(env.get("XDG_CONFIG_HOME", "")), Path(env.get("XDG_STATE_HOME", ""))
    config = config if config.is_absolute() else home / ".config"
    state = state if state.is_absolute() else home / ".local" / "state"
    return Places(SYSTEMD, config / "systemd" / "user", state / "stallguard" / "log")


class KnownJob(msgspec.Struct, frozen=True):
    """The state of a job in the service manager.  None or "": not reported."""

    loaded: bool
    running: bool = False
    state: str = ""
    pid: int | None = None
    starts: int | None = None
    ending: str = ""  # how the previous run ended
    trouble: str = ""  # what is wrong, and how to fix it


class Manager(Protocol):
    """The verbs; all raise StallguardError with the reason if the service manager refuses."""

    places: Places

    def ready(self) -> None:
        """Raise if no job of this user can be managed from here."""

    def render(self, job: AgentJob) -> dict[str, bytes]:
        """Return the files that define the job, by name."""

    def install(self, job: AgentJob) -> None:
        """Install the job; a job of that name is ended and replaced."""

    def uninstall(self, name: str) -> None:
        """End and remove the job; no error if it does not exist."""

    def start(self, name: str) -> None:
        """Start the job now."""

    def stop(self, name: str) -> None:
        """End the job's process and wait for it; it stays installed."""

    def known(self, name: str) -> KnownJob:
        """Return the state of the job."""

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's definition; () if there is none."""

    def advice(self, job: AgentJob) -> list[str]:
        """Return what the user should know after an install."""


class ToolAnswer(NamedTuple):
    """An exit code, and standard output and error together."""

    code: int
    text: str


def ask(program: str, words: Sequence[str], patience: float, cure: str) -> ToolAnswer:
    """Run `program` in the C locale.

    Raises StallguardError if it is missing (exit code 126, with `cure`) or does not end within `patience` seconds.
    """
    path = shutil.which(program)
    if path is None:
        why = "it belongs to another operating system"
        raise StallguardError(f"there is no {program} here", why=why, cure=cure, code=CANNOT_RUN)
    result = tool.run([path, *words], patience, env=os.environ | tool.C_LOCALE)
    if result.code is None:
        why = f"{program} {' '.join(words[:2])}: {result.incomplete} (after {patience:g} s)"
        raise StallguardError(f"{program} does not answer", why=why, cure="log out and in, and try again")
    return ToolAnswer(result.code, result.text)

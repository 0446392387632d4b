"""The interface of both service managers, and the state of a job.

Types only.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from stallguard.agent.job import AgentJob
from stallguard.agent.job_files import Places


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

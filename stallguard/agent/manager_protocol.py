"""What both service managers offer, and what they tell of a job.

Types only.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from stallguard.agent.job import Job
from stallguard.agent.job_files import Places


class Known(msgspec.Struct, frozen=True):
    """What the service manager knows of a job.  None or "": it does not say."""

    loaded: bool
    running: bool = False
    state: str = ""
    pid: int | None = None
    starts: int | None = None
    ending: str = ""  # how the run before this one ended, in words
    trouble: str = ""  # what has to be mended, with its cure


class Manager(Protocol):
    """The verbs; all raise StallguardError where the service manager refuses, and say why."""

    places: Places

    def ready(self) -> None:
        """Raise where no job of this user can be managed from here."""

    def render(self, job: Job) -> dict[str, bytes]:
        """Return the files that define the job, by name."""

    def install(self, job: Job) -> None:
        """Put the job in force, whatever there was before; a running one of that name is ended."""

    def uninstall(self, name: str) -> None:
        """End and remove the job; nothing to remove is no error."""

    def start(self, name: str) -> None:
        """Start the job now."""

    def stop(self, name: str) -> None:
        """End the job's process and wait for it; it stays installed."""

    def known(self, name: str) -> Known:
        """Return what the service manager knows."""

    def program(self, name: str) -> tuple[str, ...]:
        """Return the command line in the job's definition; () where there is none."""

    def advice(self, job: Job) -> list[str]:
        """Return what the user should know after an install."""

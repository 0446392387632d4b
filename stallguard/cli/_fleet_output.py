"""What verbs print with `--json` on a machine of a fleet: as without one, and more."""

from __future__ import annotations

import msgspec

from stallguard.cli.ls import ListedRuns
from stallguard.fleet.seam import JobRow
from stallguard.supervisor.live_status import Living

SCHEMA = 1


class FleetLiving(Living, frozen=True):
    """The runs that live, and the fleet's jobs that run or wait."""

    jobs: list[JobRow]  # of the fleet
    missing: str  # why the jobs are missing; empty: they are not


class FleetRuns(ListedRuns, frozen=True):
    """The runs of this machine, and the fleet's jobs."""

    jobs: list[JobRow]  # of the fleet
    missing: str  # why the jobs are missing; empty: they are not


class JobStatus(msgspec.Struct, frozen=True):
    """A job of a fleet."""

    schema: int
    store: str  # its URL
    job: JobRow  # as `ls --json` has it

"""What the rest of stallguard knows of several machines: the names below, and nothing else of this room.

import-linter holds it.  A name is imported from its module when it is first asked for, so that a machine in no fleet,
and a run of no store, do not wait for what they do not use: `stallguard run` imports nothing of the room, `ls` without
a fleet looks for a fleet file and no further.  The first list is what type checkers read, the second what is done.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallguard.fleet.commands import (
        cordon,
        found,
        hand_over,
        hand_over_again,
        install_scheduler,
        invite,
        machines,
        renew,
        revoke,
        serve_scheduler,
        submit,
        train,
        uncordon,
        uninstall,
        wish,
        work,
    )
    from stallguard.fleet.jobs.fleet_page import page_as_html, page_file, read_page
    from stallguard.fleet.jobs.held_run import guard
    from stallguard.fleet.jobs.job_table import JobRow
    from stallguard.fleet.jobs.submitting import exists, jobs_of_sweep
    from stallguard.fleet.jobs.view import (
        FleetRun,
        age,
        copies_since,
        keep_new,
        listed,
        meant,
        moment,
        readable,
        snapshot,
        stop,
    )
    from stallguard.fleet.machines.machine_list import FleetMachine, summary
    from stallguard.fleet.machines.trial import fleet_facts, store_facts

_PLACES = {
    "commands": (
        "cordon", "found", "hand_over", "hand_over_again", "install_scheduler", "invite", "machines", "renew", "revoke",
        "serve_scheduler", "submit", "train", "uncordon", "uninstall", "wish", "work",
    ),
    "jobs.fleet_page": ("page_as_html", "page_file", "read_page"),
    "jobs.held_run": ("guard",),
    "jobs.job_table": ("JobRow",),
    "jobs.submitting": ("exists", "jobs_of_sweep"),
    "jobs.view": (
        "FleetRun", "age", "copies_since", "keep_new", "listed", "meant", "moment", "readable", "snapshot", "stop",
    ),
    "machines.machine_list": ("FleetMachine", "summary"),
    "machines.trial": ("fleet_facts", "store_facts"),
}  # fmt: skip
_HOMES = {name: f"stallguard.fleet.{place}" for place, names in _PLACES.items() for name in names}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a name when it is first asked for (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_HOMES[name]), name)

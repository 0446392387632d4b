"""What the core wants done, as values.  supervisor.perform does them; the journal keeps them.

This module may not do anything.
"""

from __future__ import annotations

import msgspec

from stallguard.core.verdicts import Decision, Finding


class Action(msgspec.Struct, frozen=True, tag_field="do", omit_defaults=True):
    """Base of all actions."""


class Launch(Action, tag="launch"):
    """Start attempt `attempt` with `factor` micro-batches a batch; `resume` from the backup."""

    attempt: int
    factor: int = 1
    device: str = "default"
    resume: bool = False


class Collect(Action, tag="collect"):
    """Gather the evidence of `incident`."""

    incident: int
    attempt: int


class Signal(Action, tag="signal"):
    """Send a signal to the child's process group: TERM, KILL, INT, CONT."""

    attempt: int
    name: str


class Tell(Action, tag="tell"):
    """Tell the user something: a key of the narrative and the facts it needs."""

    kind: str
    facts: dict[str, str] = {}


class Found(Action, tag="found"):
    """Why it stalled or ended, and what follows; for the journal and the report."""

    incident: int
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None


class Conclude(Action, tag="conclude"):
    """The run is over; exit with `code`."""

    code: int
    why: str = ""


AnyAction = Launch | Collect | Signal | Tell | Found | Conclude

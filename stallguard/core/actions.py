"""What the core orders, as values.  supervisor.guard carries them out; the journal keeps them.

This module must not do anything.
"""

from __future__ import annotations

import msgspec

from stallguard.core.verdicts import Bottleneck, Decision, Finding


class Action(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """Base of all actions."""


class Launch(Action, frozen=True, tag="attempt.start_requested"):
    """Start attempt `attempt` with each batch in so many slices; `resume` from a checkpoint."""

    attempt: int
    slices: int = msgspec.field(default=1, name="factor")  # slices of each batch; 1: the whole batch at once
    device: str = "default"
    resume: bool = False


class Collect(Action, frozen=True, tag="evidence.requested"):
    """Gather the evidence of `incident`."""

    incident: int
    attempt: int


class Signal(Action, frozen=True, tag="attempt.signalled"):
    """Send a signal to the child's process group: TERM, KILL, INT, CONT.

    `number`: that of a signal which is passed on to the child alone, as it came; 0 of all others.
    """

    attempt: int
    name: str
    number: int = 0


class Ask(Action, frozen=True, tag="probe.asked"):
    """Send the probe a command: a name of wire.COMMANDS, or "stalled": the open gap is a stall, no slowness."""

    attempt: int
    command: str


class Announce(Action, frozen=True, tag="announced"):
    """Announce something to the user: the name of a message in report.narrative, and the facts that it needs."""

    message: str
    facts: dict[str, str] = {}


class Diagnosed(Action, frozen=True, tag="incident.diagnosed"):
    """Why it stalled or ended, and what follows; for the journal and the report."""

    incident: int
    findings: tuple[Finding, ...] = ()
    decision: Decision | None = None


class SlowedBy(Action, frozen=True, tag="training.slowed_by"):
    """What makes a training slow so far, worst first; for the journal and the report.  It replaces the one before."""

    attempt: int
    pid: int
    seconds: float  # that the samples cover, without stalls and the probe's own work
    bottlenecks: tuple[Bottleneck, ...] = ()  # worst first


class Conclude(Action, frozen=True, tag="run.concluded"):
    """The run is over; exit with `code`."""

    code: int
    why: str = ""


AnyAction = Launch | Collect | Signal | Ask | Announce | Diagnosed | SlowedBy | Conclude

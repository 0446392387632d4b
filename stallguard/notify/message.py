"""A notification, the events that lead to one, and how often one is sent.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from stallguard.storage import run_files

SCHEMA = 1
MISSED = "missed"  # a start of an overnight job that did not happen
SUMMARY = "summary"  # of a night of a job
TEST = "test"
# Events of the setting notify.on, and the messages for each.
OCCASIONS = {
    "stall": ("training.stalled",),
    "restart": ("attempt.restarting",),
    "give_up": ("run.gave_up", "attempt.unkillable", "run.unguarded", MISSED),
    "finish": ("run.finished", "run.failed", "run.paused", "run.diverged", "watch.over"),
    "loss": ("loss.broken",),
    "morning": (SUMMARY, MISSED),
}
PASSING = ("training.stalled", "attempt.restarting")  # during a run: their rate is limited
MOST_AN_HOUR = 12


class Notification(msgspec.Struct, frozen=True):
    """What is sent.  A command gets it as one line of JSON on its standard input."""

    schema: int
    event: str  # stall, restart, give_up, finish, loss, morning, as in notify.on; test
    message: str  # the name of the message, as `event` of a journal line; missed, summary, test
    title: str
    text: str
    run: str  # id of the run; the name of the job for a missed start; empty in a test
    time: str  # when it was made, RFC 3339, UTC


def notification(kind: str, title: str, text: str, run: str = "") -> Notification:
    """Return a notification that is made now.  `kind`: the name of the message."""
    event = next((event for event, kinds in OCCASIONS.items() if kind in kinds), kind)
    return Notification(SCHEMA, event, kind, title, text, run, run_files.utc())


Sent = tuple[tuple[float, str], ...]  # times and kinds of sent notifications, oldest first; at most an hour


def allow(sent: Sent, kind: str, now: float, every: float = 60.0) -> tuple[bool, Sent]:
    """Decide whether another can be sent now, and record it.

    `now`: monotonic seconds; `every`: seconds between two of one kind.  The last notification of a run is always sent.
    """
    recent = tuple(item for item in sent if now - item[0] < 3600)  # noqa: PLR2004 - an hour
    soon = any(what == kind and now - when < every for when, what in recent)
    if kind in PASSING and (soon or len(recent) >= MOST_AN_HOUR):
        return False, recent
    return True, (*recent, (now, kind))


def kinds(occasions: Iterable[str]) -> frozenset[str]:
    """Return the kinds of messages that are sent for the events of notify.on."""
    return frozenset(kind for occasion in occasions for kind in OCCASIONS.get(occasion, ()))

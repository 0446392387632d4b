"""Lines of a journal as a run writes them, at a time that the test chooses."""

from __future__ import annotations

import msgspec

from stallguard.core.actions import Action
from stallguard.core.events import Event
from stallguard.supervisor import notices


def encoded(what: Event | Action, time: str, clock: float) -> bytes:
    """Return the line of an event or an action.  `time`: RFC 3339; `clock`: monotonic seconds."""
    if isinstance(what, Event):
        what = msgspec.structs.replace(what, at=clock)
    fields, level, message = notices.journal_line(what)
    words = {"message": message} if message else {}
    return msgspec.json.encode({"time": time, "clock": clock, "level": level} | words | dict(fields)) + b"\n"

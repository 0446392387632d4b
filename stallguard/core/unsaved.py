"""Trainings whose checkpoints cannot be written: since when, why, and what a kill would cost.

Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.events import ProbeNote
from stallguard.core.run import Run, Unsaved

FAILED, AGAIN = "unsaved", "saved"  # kinds of the probe's note


def noted(run: Run, event: ProbeNote) -> Run:
    """Return the run after a note that a process' checkpoints cannot be written, or can be again."""
    if event.kind not in (FAILED, AGAIN):
        return run
    others = tuple(one for one in run.unsaved if one.pid != event.pid)
    if event.kind == AGAIN:
        return replace(run, unsaved=others)
    seconds = event.facts.get("seconds", "")
    since = event.at - (float(seconds) if seconds.isdecimal() else 0.0)
    failed = Unsaved(event.pid, event.facts.get("why", ""), since, event.facts.get("kept") == "1")
    return replace(run, unsaved=(*others, failed))


def facts(event: ProbeNote) -> dict[str, str]:
    """Return what an announcement of the note says besides its text: why no checkpoint can be written."""
    return {"why": event.facts.get("why", "")} if event.kind == FAILED else {}


def sentence(run: Run) -> str:
    """Return why the next attempt finds no checkpoint of the present one, "" if none failed."""
    return f"no checkpoint could be written ({why(run)})" if run.unsaved else ""


def why(run: Run) -> str:
    """Return why no checkpoint of the present attempt could be written, "" if none failed."""
    return run.unsaved[-1].why if run.unsaved else ""

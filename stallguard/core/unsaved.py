"""Trainings whose checkpoints cannot be written: since when, why, and what a kill would cost.

Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import messages
from stallguard.core.actions import Action, Announce
from stallguard.core.events import Heartbeat, ProbeNote
from stallguard.core.limits import Limits
from stallguard.core.run import Run, Unsaved, with_attempt
from stallguard.core.slicing import LOOPS

FAILED, AGAIN = "unsaved", "saved"  # kinds of the probe's note
OWN = "backup"  # the fact of a note that the script makes backups of its own, from which it resumes


# Seconds of training after which a loop that was never saved is not saved at all: a checkpoint is due after 20
# (probe/checkpoint/schedule.py), and it is said within the first minute.
NEVER_SAVED = 40.0
LOOP = "the script trains in a loop of its own, and only one that calls stallguard.checkpoint(save, load) is saved"


def noted(run: Run, event: ProbeNote) -> Run:
    """Return the run after a note that a process' checkpoints cannot be written, or can be again."""
    if OWN in event.facts:
        return replace(run, own_backup=True)
    if event.kind not in (FAILED, AGAIN):
        return run
    others = tuple(one for one in run.current.unsaved if one.pid != event.pid)
    if event.kind == AGAIN:
        return with_attempt(run, unsaved=others)
    seconds = event.facts.get("seconds", "")
    since = event.at - (float(seconds) if seconds.isdecimal() else 0.0)
    failed = Unsaved(event.pid, event.facts.get("why", ""), since, event.facts.get("kept") == "1")
    return with_attempt(run, unsaved=(*others, failed))


def heartbeat(run: Run, event: Heartbeat, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a record, with an announcement if it shows a loop of the script's own that is not saved."""
    own_loop = event.trains and event.fits == 0 and event.source in {*LOOPS, "on_batch"}
    known = any(one.pid == event.pid for one in run.current.unsaved)
    if not (limits.saves and own_loop) or event.saves or known or event.phase == "checkpoint":
        return run, []
    began = run.current.loops.get(event.pid, event.at)
    if event.at - began < NEVER_SAVED:
        return (
            run
            if event.pid in run.current.loops
            else with_attempt(run, loops={**run.current.loops, event.pid: began})
        ), []
    run = with_attempt(run, unsaved=(*run.current.unsaved, Unsaved(event.pid, LOOP, began, is_kept=False)))
    text = f"{messages.of_one(run, event.pid)}no checkpoint is made ({LOOP}); a kill now costs all that was trained"
    text += f" so far ({messages.duration(event.at - began)}), but for what the script itself saves"
    return run, [Announce("checkpoint.failed", {"text": text, "why": LOOP})]


def facts(event: ProbeNote) -> dict[str, str]:
    """Return what an announcement of the note says besides its text: why no checkpoint can be written."""
    return {"why": event.facts.get("why", "")} if event.kind == FAILED else {}


def sentence(run: Run) -> str:
    """Return why the next attempt finds no checkpoint of the present one, "" if none failed."""
    return f"no checkpoint could be written ({why(run)})" if run.current.unsaved else ""


def why(run: Run) -> str:
    """Return why no checkpoint of the present attempt could be written, "" if none failed."""
    return run.current.unsaved[-1].why if run.current.unsaved else ""

"""Decides when the training is asked to give back the memory that its library only keeps for later arrays.

When memory is short: the system calls its pressure warn or critical, the machine swaps, tasks wait for memory, or a
limit is nearly reached.  Whether there is such memory, and how much, only the probe can read (probe/caches.py); it does
nothing if that is not known, or not worth it.  A batch after that allocates anew, so AGAIN passes between two requests.

It comes before a restart (core/memory_ahead.py): a cache that grows looks like a leak from outside, and one that is
emptied ends that forecast.  A checkpoint that was asked for goes first.

Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import lifecycle, trainings
from stallguard.core.actions import Ask
from stallguard.core.diagnosis.clues import machine, script
from stallguard.core.events import ProbeNote
from stallguard.core.limits import Limits
from stallguard.core.memory_ahead import SAVED_WITHIN
from stallguard.core.run import Run, is_muted, with_attempt
from stallguard.core.shutdown import Step
from stallguard.core.text import whole_number

NOTE = "caches"  # kind of the probe's note of what came back
AGAIN = 300.0  # seconds between two requests
EVERY = 5.0  # seconds between two looks: as often as memory is read
KEEP = frozenset(("torch", "mlx"))  # libraries whose records (probe/frameworks) can read and empty a cache
SHORT = (machine.pressed, machine.swapping, machine.memory_waits, machine.near_limit)


def look(run: Run, limits: Limits) -> Step:
    """Return the run, and whether its trainings are asked to empty their caches now."""
    watch = run.current.memory
    due = run.now >= max(watch.looked + EVERY, watch.emptied + AGAIN, watch.asked + SAVED_WITHIN)
    is_left_alone = limits.observe or is_muted(run) or not limits.policy.empty_caches
    if not due or is_left_alone or run.state != lifecycle.RUNNING or run.current.decision is not None:
        return run, []
    run = with_attempt(run, memory=replace(watch, looked=run.now))
    greetings = [one.history.greeted for one in trainings.judged(run)]
    keeps = any(KEEP & greeted.versions.keys() for greeted in greetings if greeted is not None)
    scene = script.still(run.history, run.now)
    if not keeps or not any(clue.test(scene) for clue in SHORT):
        return run, []
    run = with_attempt(run, memory=replace(run.current.memory, emptied=run.now))
    return run, [Ask(attempt=run.current.number, command="caches")]


def noted(run: Run, event: ProbeNote) -> Run:
    """Return the run after a note, with the bytes that came back."""
    freed = whole_number(event.facts.get("bytes")) if event.kind == NOTE else None
    return replace(run, totals=replace(run.totals, given_back=run.totals.given_back + freed)) if freed else run

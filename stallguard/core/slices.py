"""What the probe says of slices: from which note on a batch is trained in how many, or stays whole.

Slices that would train something else are not made (probe/levers/compare.py).  Then a smaller batch is no remedy for
this script, in this attempt and in later ones, unless the script takes its size as an option.  Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import mathematics
from stallguard.core.actions import Action
from stallguard.core.events import Noted
from stallguard.core.limits import Limits
from stallguard.core.run import Run

CUT, WHOLE = "micro", "whole"  # kinds of the probe's notes


def factor(event: Noted) -> int | None:
    """Return in how many parts batches are trained from this note on; None where it does not say."""
    said = event.facts.get("factor", "")
    return max(1, int(said)) if said.isdecimal() else None


def noted(run: Run, event: Noted, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a note, and what it changes for the mathematics; other notes change nothing.

    A script may train several models: as long as one is cut in an attempt, later attempts ask for slices again.
    """
    if event.kind not in (CUT, WHOLE):
        return run, []
    said = factor(event)
    if event.kind == CUT:
        run = replace(run, whole="", cut=True, factor=said or run.factor)
    else:
        run = replace(run, whole=event.text, factor=run.factor if run.cut else said or run.factor)
    return mathematics.told(run, limits.policy)

"""What the probe says of slices: from which note or record on a batch is trained in how many, or stays whole.

Slices that would train something else are not made (probe/microbatch/compare.py).  Then a smaller batch is no remedy
for this script, in this attempt and in later ones, unless the script takes its size as an option.  Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import messages, training_changes
from stallguard.core.actions import Action, Announce
from stallguard.core.events import Heartbeat, ProbeNote
from stallguard.core.limits import Limits
from stallguard.core.run import Run, with_attempt
from stallguard.core.text import whole_number

CUT, WHOLE = "micro", "whole"  # kinds of the probe's notes
# Sources of beats (probe/wire.py) in loops of the script's own; slices are made in Keras' train_step.
LOOPS = frozenset({"function", "tape", "optimizer", "session", "torch", "hand"})
IN_A_LOOP = (
    "batches stay whole: the script trains in a loop of its own, and slices are made in Keras' fit alone; --batch-flag "
    "and --batch-env give a script its batch size"
)


def factor(event: ProbeNote | Announce) -> int | None:
    """Return in how many parts batches are trained from this note on; None if it does not say."""
    number = whole_number(event.facts.get("factor"))
    return None if number is None else max(1, number)


def noted(run: Run, event: ProbeNote, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a note, and what it changes for the mathematics; other notes change nothing.

    A script may train several models: as long as one is cut in an attempt, later attempts ask for slices again.
    """
    if event.kind not in (CUT, WHOLE):
        return run, []
    said = factor(event)
    if event.kind == CUT:
        run = replace(with_attempt(run, cut=True, factor=said or run.current.factor), whole="")
    else:
        run = replace(
            with_attempt(run, factor=run.current.factor if run.current.cut else said or run.current.factor),
            whole=event.text,
        )
    return training_changes.announce(run, limits.policy)


def heartbeat(run: Run, event: Heartbeat, limits: Limits) -> tuple[Run, list[Action]]:
    """Return the run after a record; its batches stay whole if it was to train slices and trains in a loop.

    A script that cuts its batches itself (stallguard.microbatches) says so in the record's factor.
    """
    loop = event.trains and event.beats > 0 and event.fits == 0 and event.source in LOOPS
    asked = run.current.factor > 1 and not run.current.cut and not run.whole and not limits.policy.gives_size
    if not (loop and asked) or event.factor > 1:
        return run, []
    run, announced = training_changes.announce(
        replace(with_attempt(run, factor=1), whole=IN_A_LOOP), limits.policy
    )
    facts = {"text": messages.of_one(run, event.pid) + IN_A_LOOP, "factor": "1"}
    return run, [*announced, Announce("batch.whole", facts)]

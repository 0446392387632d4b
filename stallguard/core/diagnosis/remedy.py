"""What a remedy is: a value that core.diagnosis.causes gives to each cause, and core.policy.decide reads.

A ladder lists the steps that are taken one after the other against one trouble (core.policy.attempts.one_trouble):

    same    a new process from the last checkpoint, with the same batch
    half    the same in twice as many micro-batches: half the memory a step, the same batch for the optimizer
    cpu     the same without the GPU

A step that cannot be taken (the batch cannot be halved, or no GPU is in use) is skipped.  The steps of another cause
that is about as likely follow (core.policy.decide).  After the end of all ladders the run continues with `same` as
long as each attempt gets further than the one before, unless the ladder is `strict`.
`persists`: the last step is repeated for as long as it can be taken, because each time it changes something; the steps
of another cause come after that.
`instead` names what is done at once, without a ladder: wait, notify, stop, finish.
This module must not decide anything.
"""

from __future__ import annotations

from typing import NamedTuple

SAME, HALF, CPU = "same", "half", "cpu"
WAIT, NOTIFY, STOP, FINISH = "wait", "notify", "stop", "finish"


class Remedy(NamedTuple):
    """What to do about a cause, and why."""

    ladder: tuple[str, ...]
    why: str
    persists: bool = False
    strict: bool = False
    instead: str = ""


def no_restart(instead: str, why: str) -> Remedy:
    """Return the remedy of a cause that a restart does not help against."""
    return Remedy((), why, instead=instead)

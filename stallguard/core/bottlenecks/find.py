"""What makes a training slow, worst first.

Each rule speaks of its own kind; here what two of them say of one place is made one, and what is small beside the
whole is left out.  This module must not decide what to do: slow is not stalled.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.bottlenecks import kinds
from stallguard.core.bottlenecks.rules import RULES
from stallguard.core.bottlenecks.work import Work
from stallguard.core.history import History
from stallguard.core.verdicts import Bottleneck

LEAST_TIME = 10.0  # seconds of samples from which they say something
EXPLAINS = 0.3  # of the time: swapping that takes so much is the reason for what else takes long
LEAST_SHARE = 0.10  # of the time, below which a bottleneck is not worth a change


def bottlenecks(history: History) -> tuple[Bottleneck, ...]:
    """Return what makes a training slow so far, the one that cost most first; empty for a healthy one."""
    if not history.stages or not history.stages[-1].heartbeat.beats:
        return ()
    work = Work(history, history.stages)
    if work.total < LEAST_TIME:
        return ()
    found = [one for rule in RULES if (one := rule(work)) is not None and one.share >= LEAST_SHARE]
    return tuple(sorted(_merged(_explained(found)), key=lambda one: -one.seconds))


def _merged(found: list[Bottleneck]) -> list[Bottleneck]:
    """Make one of a falling pace and of the place that grew with it: the user has one thing to change."""
    falling = next((one for one in found if one.kind == kinds.PACE), None)
    same = next(
        (
            one
            for one in found
            if one is not falling and falling and one.line and _place(one) == _place(falling)
        ),
        None,
    )
    if falling is None or same is None:
        return found
    whole = replace(
        falling,
        seconds=max(falling.seconds, same.seconds),
        share=max(falling.share, same.share),
        evidence=(
            *falling.evidence,
            f"{kinds.KINDS[same.kind].title} took {same.share:.0%} of the time",
            *same.evidence,
        ),
        advice=same.advice,
    )
    return [whole, *(one for one in found if one is not falling and one is not same)]


def _explained(found: list[Bottleneck]) -> list[Bottleneck]:
    """Leave out the script's own code and a falling pace if memory is swapped: a line that waits for pages is why."""
    swap = next((one for one in found if one.kind == kinds.SWAP and one.share >= EXPLAINS), None)
    effects = [one for one in found if one.kind in (kinds.SCRIPT, kinds.PACE)]
    if swap is None or not effects:
        return found
    place = max(effects, key=lambda one: (one.line > 0, one.seconds))
    named = replace(
        swap, where=place.where, file=place.file, line=place.line, seconds=max(swap.seconds, place.seconds),
        share=max(swap.share, place.share),
    )  # fmt: skip
    return [named, *(one for one in found if one is not swap and one not in effects)]


def _place(one: Bottleneck) -> tuple[str, int]:
    return one.file, one.line

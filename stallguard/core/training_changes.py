"""What a run changed in the training results, attempt by attempt.

What one size or device changes is policy.decide.mathematics.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from stallguard.core.actions import Action, Announce
from stallguard.core.limits import PolicyLimits
from stallguard.core.policy import decide
from stallguard.core.run import Run


def announce(run: Run, limits: PolicyLimits) -> tuple[Run, list[Action]]:
    """Announce what changed so far, if the size or the device of a batch differs from before."""
    text = decide.mathematics(run.current.factor, run.current.device, limits)
    if run.changes and run.changes[-1][1] == text:
        return run, []
    changes = (*run.changes, (run.current.number, text))
    return replace(run, changes=changes), [Announce("training.changed", {"text": summary(changes)})]


def summary(changes: Sequence[tuple[int, str]]) -> str:
    """Return the changes, pairs of attempt and sentence, in one sentence."""
    (_, first), *others = changes
    if not others:
        return first
    return "; ".join([f"at first {first}", *(f"in attempt {attempt} {text}" for attempt, text in others)])

"""Regrowth: when a run that trains a smaller batch tries a larger one, and what then happens.

Half the parts are tried after `regrow_after` seconds of good progress, at the end of an epoch, which only the probe
sees: it gets a command (wire.COMMANDS) and answers with a note, either that it has changed the size, or that the
epoch has ended and only a new start can change it.  A size that was left twice is not tried again, nor in later
runs.  Pure, as core.fold.
"""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core import lifecycle
from stallguard.core.actions import Action, Ask
from stallguard.core.events import ProbeNote
from stallguard.core.history import batch_rows
from stallguard.core.limits import Limits, PolicyLimits
from stallguard.core.policy import decide
from stallguard.core.run import Run
from stallguard.core.sizes import Sizes, label, leave
from stallguard.core.text import whole_number
from stallguard.core.verdicts import Decision

TWICE = 2  # once can be another program's load; a size that was left twice is too large
WHY = "the smaller batch went well; trying the larger one again"
GROWN, EPOCH_END = "regrown", "epoch-end"  # kinds of the probe's answers


def larger(factor: int, rows: int | None, sizes: Sizes, stable: float, limits: PolicyLimits) -> int | None:
    """Return the parts of the next larger batch to try; None if it is too early, or none is left to try.

    `factor`: the parts now; `rows`: of a whole batch, if known; `stable`: seconds at this size.
    """
    next_factor = factor // 2
    least = max(1, sizes.factor, limits.microbatches)
    if not limits.regrow or stable < limits.regrow_after or next_factor < least:
        return None
    return next_factor if sizes.left.get(label(rows, next_factor), 0) < TWICE else None


def ask(run: Run, limits: Limits) -> tuple[Run, list[Action]]:
    """Send the probe the command for a larger batch if it is due."""
    if run.regrowing or run.state != lifecycle.RUNNING or run.decision is not None or limits.observe:
        return run, []
    rows = batch_rows(run.history)
    factor = larger(run.factor, rows, run.sizes, run.now - run.sized, limits.policy)
    if factor is None:
        return run, []
    return replace(run, regrowing=True), [Ask(attempt=run.attempt, command="regrow")]


def grown(run: Run, event: ProbeNote) -> Run:
    """Return the run after the probe's note; any other note leaves it as it is."""
    factor = whole_number(event.facts.get("factor"))
    if event.kind != GROWN or factor is None:
        return run
    return replace(run, factor=max(1, factor), sized=run.now, regrowing=False)


def restart(run: Run, event: ProbeNote, limits: Limits) -> Decision | None:
    """Return the decision to restart with the larger batch, if the probe reports the end of an epoch."""
    if event.kind != EPOCH_END or not run.regrowing or run.decision is not None:
        return None
    factor = run.factor // 2
    effect = decide.mathematics(factor, run.device, limits.policy)
    return Decision(action="restart", why=WHY, factor=factor, device=run.device, mathematics=effect)


def after(run: Run, factor: int) -> Sizes:
    """Return what is known of sizes when the next attempt is to have `factor` parts."""
    return leave(run.sizes, batch_rows(run.history), run.factor) if factor > run.factor else run.sizes

"""How a new run begins: what its first attempt is launched with, and what the user reads then.

The first attempt waits for this module, so it must stay cheap to import.
"""

from __future__ import annotations

from stallguard.core.actions import Launch
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.earlier_runs import EarlierRuns
from stallguard.supervisor.launcher import Launcher


def first_launch(context: RunContext, earlier: EarlierRuns, trial_factor: int | None) -> Launch:
    """Return the launch of a new run's first attempt.  `trial_factor`: the parts of its batches in a trial."""
    factor, settings = trial_factor, context.settings.config
    if factor is None:
        is_sliced = settings.run.probe and not settings.policy.gives_size
        factor = max(earlier.sizes.factor, settings.policy.microbatches) if is_sliced else 1
    return Launch(attempt=1, factor=factor, resume=bool(context.request.continues))


def announce(context: RunContext, launcher: Launcher, earlier: EarlierRuns, first: Launch) -> None:
    """Write to the terminal what is guarded, and what was decided before the start."""
    request, announce = context.request, context.reporter.announce
    announce("run.started", {"command": " ".join(request.words), "run": context.directory.id})
    for text in context.settings.loaded.ignored:
        announce("stallguard.trouble", {"text": text})
    chosen = request.command.interpreter
    if chosen is not None:
        announce("interpreter.chosen", {"python": chosen.path, "why": chosen.why})
        if chosen.hint:
            announce("interpreter.differs", {"python": chosen.path, "hint": chosen.hint})
    if request.continues:
        announce("run.continues", {"run": request.continues})
    if not request.reach.injectable:
        announce("probe.impossible", {"why": request.reach.why})
    known, given = earlier.sizes, launcher.given(1)
    if 1 < known.factor == first.factor:
        text = f"find-batch saw this script survive with its batches in {known.factor} parts: beginning there"
        announce("batch.smaller", {"text": text})
    elif given.whole is not None and given.whole == known.rows:
        text = f"find-batch saw this script survive with batches of up to {known.rows} rows: none is larger"
        announce("batch.smaller", {"text": text})

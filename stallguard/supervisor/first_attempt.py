"""How a new run begins: what its first attempt is launched with, and what the user reads then.

The first attempt waits for this module, so it must stay cheap to import.
"""

from __future__ import annotations

from stallguard.core.actions import Launch
from stallguard.supervisor.context import RunContext
from stallguard.supervisor.earlier_runs import EarlierRuns
from stallguard.supervisor.launcher import Launcher


def first_launch(context: RunContext, earlier: EarlierRuns) -> Launch:
    """Return the launch of a new run's first attempt."""
    settings = context.settings.config
    is_sliced = settings.run.probe and not settings.policy.gives_size
    factor = max(earlier.sizes.factor, settings.policy.microbatches) if is_sliced else 1
    return Launch(attempt=1, factor=factor, resume=bool(context.request.continues))


def announce(context: RunContext, launcher: Launcher, earlier: EarlierRuns, first: Launch) -> None:
    """Write to the terminal what is guarded, and what was decided before the start."""
    request, reporter = context.request, context.reporter
    reporter.announce("run.started", {"command": " ".join(request.words), "run": context.directory.id})
    for text in context.settings.loaded.ignored:
        reporter.announce("stallguard.trouble", {"text": text})
    chosen = request.command.interpreter
    if chosen is not None:
        reporter.announce("interpreter.chosen", {"python": chosen.path, "why": chosen.why})
        if chosen.hint:
            reporter.announce("interpreter.differs", {"python": chosen.path, "hint": chosen.hint})
    if request.continues:
        reporter.announce("run.continues", {"run": request.continues})
    if not request.reach.injectable:
        reporter.announce("probe.impossible", {"why": request.reach.why})
    known, given = earlier.sizes, launcher.given(1)
    if 1 < known.factor == first.factor:
        reporter.announce("batch.known_parts", {"parts": str(known.factor)})
    elif given.whole is not None and given.whole == known.rows:
        reporter.announce("batch.known_rows", {"rows": str(known.rows)})

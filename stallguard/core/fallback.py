"""What remains if the core itself fails: the training continues unsupervised, and its end is the run's.

`follow` replaces fold.advance.  It passes the user's commands on; it judges, restarts and ends nothing by itself.
Pure, as core.fold.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from stallguard.core import ledger, shutdown
from stallguard.core.actions import Announce, Conclude, Signal
from stallguard.core.events import Event, Exited, Failed, Launched, UserCommand
from stallguard.core.lifecycle import ALIVE, ENDED, UNGUARDED
from stallguard.core.run import Run, with_attempt
from stallguard.core.shutdown import Step, exit_code, move
from stallguard.errors import OWN_FAILURE

WHY = "stallguard itself failed"
ENDING = {"interrupt": "INT", "stop": "TERM", "finish": "TERM"}


def is_vital(event: Event) -> bool:
    """Return whether an event must not be skipped: a start, an end, a command to end the training."""
    return isinstance(event, Launched | Failed | Exited) or (isinstance(event, UserCommand) and event.verb in ENDING)


def refuses(run: Run, verb: str) -> str:
    """Return why a command cannot be carried out any more; "" if it can."""
    refused = run.state == UNGUARDED and verb not in ENDING
    return f"{WHY}, the training goes on unguarded, and can only be stopped" if refused else ""


def begin(run: Run, event: Event, error: str) -> Step:
    """Take over at `event`, on which the core failed; without a child the run is over, with OWN_FAILURE."""
    announced = Announce("run.unguarded", {"error": error})
    unknown = ledger.after(run.ledger, max(event.at, run.now), announced)
    run, actions = follow(replace(with_attempt(run, interrupts=0), ledger=unknown), event)
    if run.state in ENDED:
        return run, [announced, *actions]
    if run.state in ALIVE:
        return move(run, "internal error", deadline=math.inf), [announced, *actions]
    return move(run, "start failed", code=OWN_FAILURE), [announced, Conclude(code=OWN_FAILURE, why=WHY)]


def follow(run: Run, event: Event) -> Step:
    """Return the run after `event`, and the actions that pass it on."""
    if run.state in ENDED or getattr(event, "attempt", run.current.number) < run.current.number:
        return run, []
    run = replace(run, now=max(event.at, run.now))
    match event:
        case Launched():
            run = with_attempt(run, number=event.attempt, pid=event.pid, launched=event.at, decision=None)
            return move(run, "launched"), []
        case Failed():
            return move(run, "start failed", code=event.code), [Conclude(code=event.code, why=event.why)]
        case Exited():
            return _exited(run, event)
        case UserCommand():
            return _asked(run, event)
    return run, []


def _exited(run: Run, event: Exited) -> Step:
    """Use its code for the run, unless it was ended for a restart, which does not happen now."""
    lost = run.current.decision is not None and run.current.decision.action == "restart"
    code = OWN_FAILURE if lost else exit_code(run.current.decision, event)
    run = with_attempt(run, script_code=shutdown.script_code(run, event))
    return move(run, "ended", code=code), [Conclude(code=code, why=WHY if lost else "")]


def _asked(run: Run, event: UserCommand) -> Step:
    """Pass a command to end the training on; a second one kills it.  Pass any other signal on as it came.

    A process that stallguard did not start is left to itself.
    """
    if run.current.foreign:
        return move(run, "ended", code=OWN_FAILURE), [Conclude(code=OWN_FAILURE, why=WHY)]
    if event.verb == "signal":
        name = event.argument.removeprefix("SIG")
        return run, [Signal(attempt=run.current.number, name=name, number=event.number)]
    if event.verb not in ENDING:
        return run, []
    name = "KILL" if run.current.interrupts else ENDING[event.verb]
    run = with_attempt(run, interrupts=run.current.interrupts + 1)
    return run, [Signal(attempt=run.current.number, name=name)]

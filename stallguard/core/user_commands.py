"""Commands of the user, over the control socket, by a signal or by the clock, and what follows from them.

Pure, as core.fold.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from stallguard.core import fallback, lifecycle, messages, shutdown
from stallguard.core.actions import Action, Announce, Collect, Conclude, Signal
from stallguard.core.events import DUMP, Exited, UserCommand
from stallguard.core.limits import Limits
from stallguard.core.run import Run, beats, with_attempt
from stallguard.core.shutdown import OWN_CODE, Step, kill, move, stop
from stallguard.core.verdicts import Decision
from stallguard.errors import SIGNALLED, WATCH_ENDED

MUTE = 3600.0  # seconds that `mute` lasts
OUTLIVED = 10.0  # seconds after an interrupt, in which a second one ends the training at once
# Seconds after a signal that was passed on, in which an end of the training counts as its answer if no batch ends.
ANSWERED = 600.0
STOP_VERBS = ("interrupt", "stop", "restart")
FROM_SCRATCH = "from scratch"  # argument of restart: do not use the checkpoints


def take(run: Run, event: UserCommand, limits: Limits) -> Step:
    """Return the run after a command, and what is to be done."""
    if event.verb == "mute":
        seconds = float(event.argument or MUTE)
        announced = Announce("stalls.unmuted")
        if seconds > 0:
            announced = Announce("stalls.muted", {"duration": messages.duration(seconds)})
        return replace(run, quiet_until=run.now + max(0.0, seconds)), [announced]
    if event.verb == "dump":
        return run, [Collect(incident=DUMP, attempt=run.current.number)]
    if run.current.foreign:
        return leave(run) if event.verb in (*STOP_VERBS, "finish", "signal") and event.verb != "restart" else (run, [])
    if event.verb == "finish":
        return shutdown.time_is_up(run, event.argument, limits)
    if event.verb == "signal":
        return _pass_on(run, event)
    return _end(run, event, limits) if event.verb in STOP_VERBS else (run, [])


def refuses(run: Run, verb: str) -> str:
    """Return why a command cannot be carried out now; "" if it can."""
    if run.state == lifecycle.UNGUARDED:
        return fallback.refuses(run, verb)
    if verb != "restart":
        return ""
    if run.current.foreign:
        return "stallguard did not start it, and only watches it"
    if run.state == lifecycle.NEW:
        return "its first attempt has not begun"
    if run.state in lifecycle.ENDED:
        return "it is over"
    ending = run.current.arranged or run.state in (lifecycle.STOPPING, lifecycle.KILLING)
    if ending and run.current.decision is not None and run.current.decision.action != "restart":
        return f"it is being ended, and nothing follows ({run.current.decision.why})"
    return ""


def leave(run: Run) -> Step:
    """End the watch of a process that stallguard did not start; the process goes on."""
    if run.state not in lifecycle.ALIVE:
        return run, []
    why = f"{WATCH_ENDED}, and the process goes on"
    return move(run, "ended", code=0, deadline=math.inf), [Announce("watch.ended"), Conclude(code=0, why=why)]


def _end(run: Run, event: UserCommand, limits: Limits) -> Step:
    if refuses(run, event.verb):
        return run, []
    if run.state == lifecycle.BACKOFF and event.verb == "restart":
        # The pause is over now; a start that was ordered already has no deadline any more.
        return replace(run, deadline=run.deadline if math.isinf(run.deadline) else run.now), []
    if run.state == lifecycle.BACKOFF:
        return move(run, "ended", code=130), [Conclude(code=130, why="interrupted between two attempts")]
    ending = run.state in (lifecycle.STOPPING, lifecycle.KILLING)
    if run.state not in lifecycle.ALIVE:
        return run, []
    if ending and event.verb != "interrupt":
        if event.verb != "stop" or run.current.decision is None or run.current.decision.action != "restart":
            return run, []
        # It is being ended for a restart; after a stop no attempt follows.
        decision = Decision(action="finish", why="you asked to stop", code=OWN_CODE)
        return with_attempt(run, decision=decision), [Announce("run.stopping")]
    count = run.current.interrupts + (event.verb != "restart")
    if event.verb == "interrupt" and count == 1:
        # The training can catch it, save and end in its own time, so there is no deadline.
        decision = Decision(action="finish", why="interrupted by you", code=OWN_CODE)
        run = with_attempt(run, interrupts=count, decision=decision, interrupted=(run.now, beats(run)))
        return run, [Signal(attempt=run.current.number, name="INT"), Announce("interrupt.forwarded")]
    again = event.verb == "restart"
    decision = Decision(
        action="restart" if again else "finish", why=f"you asked to {event.verb}", slices=run.current.slices,
        device=run.current.device, code=OWN_CODE, resume=event.argument != FROM_SCRATCH,
    )  # fmt: skip
    run = with_attempt(run, interrupts=count, decision=decision)
    if event.verb == "interrupt":
        return kill(run)
    run, actions = stop(run, decision, limits)
    return run, [Announce("run.stopping"), *actions]


def _pass_on(run: Run, event: UserCommand) -> Step:
    """Send the training a signal that stallguard was sent.

    If the training ends then, by the signal or by its handler, that was asked for, as it would be without stallguard.
    """
    facts = {"signal": event.argument}
    if run.state == lifecycle.BACKOFF:
        last = run.past.attempts[-1].code if run.past.attempts else None
        if _is_by(last, event.number):  # it was sent to both, and the training's end was seen first
            code = SIGNALLED + event.number
            return move(run, "ended", code=code), [Conclude(code=code, why=_signalled(event.argument))]
        return run, [Announce("signal.unused", facts)]
    if run.state not in lifecycle.ALIVE:
        return run, []
    run = with_attempt(run, passed_on=(*run.current.passed_on, event.number))
    if run.state in lifecycle.WATCHED and run.current.decision is None:
        decision = Decision(action="finish", why=_signalled(event.argument), code=OWN_CODE)
        run = with_attempt(run, decision=decision, interrupted=(run.now, beats(run)))
    sent = Signal(attempt=run.current.number, name=event.argument.removeprefix("SIG"), number=event.number)
    return run, [sent, Announce("signal.forwarded", facts)]


def ended_by_signal(run: Run, event: Exited) -> Run:
    """Return the run with its end decided if the attempt ended by a signal that was passed on to it."""
    by_it = event.known and any(_is_by(event.code, one) for one in run.current.passed_on)
    if run.current.decision is not None or not by_it:
        return run
    name = event.signal or f"signal {abs(event.code) % SIGNALLED}"
    return with_attempt(run, decision=Decision(action="finish", why=_signalled(name), code=OWN_CODE))


def _is_by(code: int | None, number: int) -> bool:
    # A shell reports the signal that ended its child as the latter.
    return code in (-number, SIGNALLED + number)


def _signalled(name: str) -> str:
    return f"signalled: {name} was sent to stallguard, and passed on to the training"


def drop_outlived(run: Run, limits: Limits) -> Step:
    """Drop an interrupt, or a signal, after which the training has continued: the run is supervised again.

    A script can handle Ctrl-C by itself.  If the decision stayed, no stall of this run would be acted upon any more.
    """
    if run.current.interrupted is None or run.current.arranged or run.state not in lifecycle.WATCHED:
        return run, []
    since, batches = run.current.interrupted
    went_on = run.now >= since + OUTLIVED and beats(run) >= batches + limits.detector.recovered_after
    is_signal = not run.current.interrupts
    if not went_on and not (is_signal and run.now >= since + ANSWERED):
        return run, []
    announced: list[Action] = [] if is_signal else [Announce("interrupt.unused")]
    return with_attempt(run, decision=None, interrupts=0, interrupted=None), announced

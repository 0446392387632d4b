"""Where the time of a run went: each second is in exactly one category, and their sum is the wall time.

This is the one source of every share and sum of time that stallguard shows.  `after` takes the events and actions of a
run in order.  The supervisor's core feeds it as they come, the report from the journal, so both show the same seconds.

Theory of operation
-------------------

What is certain is settled in `Ledger.spent`, and never changes again.  The time from `since` on is open: `spent` counts
it as what it looks like now.

- While a training trains, `since` is its last progress.  The next progress settles the time until then, in the
  category of the phase that it was in; what a counter of the probe calls waiting for input is `input_wait`.
- So when a stall is declared, all its silence is still open, and becomes `stalled`.  A suspicion that is cleared leaves
  the time before it to its phase, and the rest to `suspected`.
- What follows a stall or a crash (evidence, end, pause, start) begins with its action or event.
- A process that is ended, or ends with another code than 0, leaves a batch unfinished: that is `ending`.  If it was
  silent for longer than a pause, what exceeds its usual pause is `suspected`: nothing judged it, as after Ctrl-C.
- Batches that an attempt trains before it is as far as the one before are `redone_batches`, in each phase.

The categories are core.time_spent.  Of several trainings, the one that last made progress counts; during a suspicion,
or an incident, the one that the incident is about, as core.trainings has its focus.

The machine's sleep and an absence of stallguard are added by the events that report them, because the supervisor's
clock stands still in a sleep and begins anew after a boot.  A process that was stopped by a signal is judged after some
seconds, and then all its silence is `stopped_by_user`.

It also knows how far each training of an attempt is, and when a later attempt is as far as the interrupted one was:
until then it trains batches a second time.  Positions of two attempts compare by place (probe/process_key.py), as in
core.policy.

The value has a bounded size.  Pure; must not judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stallguard.core import events
from stallguard.core.actions import Announce, Collect, Conclude, Signal
from stallguard.core.history import BROKEN_LOSS
from stallguard.core.text import whole_number
from stallguard.core.time_spent import Spent

# Seconds of silence at the end of a process that were more than a pause (as clues.process.QUIET).
PAUSE = 20.0
TIMES = 3.0  # and more than so many usual pauses
HALVED = 30.0  # seconds after which half of a pause counts
PROCESSES = 64  # of an attempt whose positions are kept, the newest


# States beside the categories: nothing special; the attempt has ended, and what follows is not known; the run is over.
AT_WORK, EXITED, OVER = "", "exited", "over"
SILENT = ("suspected", "stalled", "collecting_evidence", "stopped_by_user")

# The category of each phase of the probe's record once a batch is trained; of all others, training.
PHASES = {
    "validation": "validation", "prediction": "validation", "checkpoint": "checkpoint",
    "idle": "script", "finishing": "script", "named": "script",
}  # fmt: skip


# Categories that are worth nothing while the loss is not finite.
BROKEN = ("training", "validation", "checkpoint")

Position = tuple[int, int, int]  # fit, epoch, batch; of a loop without epochs: fit, -1, updates


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the time went until `since` (seconds on the supervisor's clock), and what is needed to go on."""

    spent: Spent = Spent()
    since: float = 0.0
    state: str = AT_WORK  # or a category that does not depend on the phase
    phase: str = "training"  # category of the training's phase
    suspected: float = 0.0  # when the suspicion began
    subject: int = 0  # the process that the suspicion or incident is about; 0: not known
    attempt: int = 0
    observed: bool = False  # a probe has reported in this attempt
    trains: bool = False  # a batch was trained in this attempt
    broken: bool = False  # the loss of the training that last made progress is not finite
    processes: dict[int, ProcessPosition] = {}
    interruption: Interruption | None = None  # until a later attempt is as far
    pause: float = 0.0  # the longest pause of the training lately, seconds; 0: not known

    @property
    def is_interrupted(self) -> bool:
        """Whether a stall, a crash or a restart costs time now."""
        return self.interruption is not None or self.state not in (AT_WORK, "suspected", "unknown", OVER)


def spent(ledger: Ledger, now: float) -> Spent:
    """Return where the time went until `now` (seconds on the supervisor's clock)."""
    return _added(ledger.spent, _open(ledger, now))


def after(ledger: Ledger, at: float, what: object) -> Ledger:
    """Return the ledger after an event or an action.  `at`: when it came, on the supervisor's clock."""
    handler = _HANDLERS.get(type(what))
    if handler is None or ledger.state == OVER or getattr(what, "attempt", ledger.attempt) < ledger.attempt:
        return ledger
    if ledger.state == "unknown" and not isinstance(what, Conclude | events.ClockGap | events.SupervisorRestarted):
        return ledger  # it is not guarded any more
    return handler(ledger, at, what)


def trained_again(ledger: Ledger, pid: int, resumed: Position) -> int | None:
    """Return how many batches process `pid` trains a second time if it resumes there; None if that is not known."""
    if ledger.interruption is None or pid not in ledger.processes:
        return None
    return batches_trained_again(ledger.interruption, ledger.processes[pid], resumed)


# ---- the open time ----------------------------------------------------------------------------------------------


def _usual(ledger: Ledger) -> str:
    """Return the category of a time in which nothing special happens."""
    if ledger.trains and ledger.broken and ledger.phase in BROKEN:
        return "loss_not_finite"
    if ledger.trains:
        return ledger.phase if ledger.interruption is None else "redone_batches"
    if ledger.attempt and not ledger.observed:
        return "unknown"
    return "start_up" if ledger.attempt <= 1 else "restart"


def _open(ledger: Ledger, until: float) -> list[tuple[str, float]]:
    """Return the categories and seconds of the time that is not settled."""
    since, until = ledger.since, max(until, ledger.since)
    if ledger.state == OVER:
        return []
    if ledger.state == "suspected":
        middle = min(max(ledger.suspected, since), until)
        return [(_usual(ledger), middle - since), ("suspected", until - middle)]
    return [(_usual(ledger) if ledger.state in (AT_WORK, EXITED) else ledger.state, until - since)]


def _added(times: Spent, parts: Iterable[tuple[str, float]]) -> Spent:
    return replace(times, **{name: getattr(times, name) + seconds for name, seconds in parts if seconds})


def _settle(ledger: Ledger, at: float, category: str = "", **changes: Any) -> Ledger:
    """Return the ledger with its open time settled until `at`: as `category`, or as what it looks like."""
    until = max(at, ledger.since)
    parts = [(category, until - ledger.since)] if category else _open(ledger, until)
    return replace(ledger, **({"spent": _added(ledger.spent, parts), "since": until} | changes))


def _ends(ledger: Ledger, at: float, unfinished: str, **changes: Any) -> Ledger:
    """Return the ledger after a process was ended, or ended: its open time is `unfinished` and perhaps silence."""
    silence, usual = max(0.0, at - ledger.since), ledger.pause
    is_long = ledger.trains and ledger.phase != "script" and usual > 0.0 and silence > max(PAUSE, TIMES * usual)
    batch = min(usual, silence) if is_long or ledger.state == "suspected" else silence
    parts = [(unfinished, batch), ("suspected", silence - batch)]
    return replace(ledger, spent=_added(ledger.spent, parts), since=max(at, ledger.since), **changes)


# ---- one handler an event or action -------------------------------------------------------------------------------


def _on_launched(ledger: Ledger, at: float, event: events.Launched) -> Ledger:
    interruption = ledger.interruption
    if interruption is None and ledger.attempt:
        interruption = interrupted(ledger.processes, ledger.subject)
    # A journal can end before it has what followed the end of an attempt.
    category = "ending" if ledger.state == EXITED and ledger.trains else ""
    ledger = _settle(ledger, at, category, attempt=event.attempt, interruption=interruption)
    return replace(
        ledger, state=AT_WORK, observed=False, trains=False, processes={}, subject=0, broken=False, pause=0.0
    )


def _on_connected(ledger: Ledger, _at: float, event: events.ProbeConnected) -> Ledger:
    before = ledger.processes.get(event.pid, ProcessPosition())
    return _with(replace(ledger, observed=True), event.pid, replace(before, place=event.place))


def _on_note(ledger: Ledger, at: float, event: events.ProbeNote) -> Ledger:
    """The note of a broken loss comes before the record that has it."""
    breaks = event.kind == BROKEN_LOSS and ledger.state == AT_WORK and ledger.trains
    return _settle(ledger, at, broken=True) if breaks else ledger


def _with(ledger: Ledger, pid: int, process: ProcessPosition) -> Ledger:
    each = {**ledger.processes, pid: process}
    return replace(ledger, processes=dict(list(each.items())[-PROCESSES:]))


def _on_heartbeat(ledger: Ledger, at: float, event: events.Heartbeat) -> Ledger:
    before = ledger.processes.get(event.pid, ProcessPosition(input_s=event.input_s))
    process = moved_on(before, event)
    ledger = _with(replace(ledger, observed=True), event.pid, process)
    if ledger.state != AT_WORK:
        return ledger
    if event.aside:  # without hooks, what it does is not known
        return _settle(ledger, at, trains=True, phase="unknown")
    if not event.beats:  # of a start that goes on: if it stalls, its silence begins with its last progress
        return ledger if ledger.trains else _settle(ledger, min(event.progress_at, at))
    if not ledger.trains:
        ledger = _settle(ledger, min(event.beat_at, at), trains=True, phase="training")
    if ledger.interruption is not None and is_caught_up(ledger.interruption, process):
        ledger = _settle(ledger, min(event.beat_at, at), interruption=None)

    progress, phase = min(event.progress_at, at), PHASES.get(event.phase, "training")
    if progress < ledger.since:
        return ledger
    kept = ledger.pause * 0.5 ** ((progress - ledger.since) / HALVED)
    ledger = replace(ledger, pause=max(kept, event.longest))
    entered = progress if phase == ledger.phase else min(event.phase_at, progress)
    waited = event.input_s - before.input_s
    if ledger.phase == phase == "training" and ledger.interruption is None and not ledger.broken:
        ledger = _settle(ledger, ledger.since + min(max(waited, 0.0), progress - ledger.since), "input_wait")
    ledger = _settle(ledger, entered, phase=phase, broken=bool(event.loss_not_finite))
    return _settle(ledger, progress)


def _on_left(ledger: Ledger, at: float, event: events.ProcessLeft) -> Ledger:
    """What is suspected or stalled is over with its process, without an announcement."""
    is_subject = ledger.state in SILENT and event.pid == ledger.subject
    return _goes_on(ledger, at) if is_subject else ledger


def _goes_on(ledger: Ledger, at: float) -> Ledger:
    has_trained = any(one.position is not None for one in ledger.processes.values())
    return _settle(ledger, at, state=AT_WORK, trains=has_trained, subject=0)


def _on_collect(ledger: Ledger, at: float, action: Collect) -> Ledger:
    begins = action.incident != events.DUMP and ledger.state == "stalled"
    return _settle(ledger, at, state="collecting_evidence") if begins else ledger


def _on_collected(ledger: Ledger, at: float, event: events.Collected) -> Ledger:
    ends = event.incident != events.DUMP and ledger.state == "collecting_evidence"
    return _settle(ledger, at, state="stalled") if ends else ledger


def _on_signal(ledger: Ledger, at: float, action: Signal) -> Ledger:
    """SIGINT is the user's: a script can handle it and go on."""
    if action.name == "INT" and ledger.state == AT_WORK:
        return _ends(ledger, at, _usual(ledger))
    if action.name not in ("TERM", "KILL") or ledger.state not in (AT_WORK, *SILENT):
        return ledger
    is_judged = ledger.state not in (AT_WORK, "suspected")
    return (_settle if is_judged else _ends)(ledger, at, "" if is_judged else _usual(ledger), state="ending")


def _on_exited(ledger: Ledger, at: float, event: events.Exited | events.Failed) -> Ledger:
    failed = isinstance(event, events.Exited) and event.known and event.code != 0
    if failed and ledger.trains and ledger.phase != "script" and ledger.state in (AT_WORK, "suspected"):
        return _ends(ledger, at, "ending", state=EXITED)
    if ledger.state == AT_WORK:  # a crash or the end of the run: what follows at the same time says which
        return replace(ledger, state=EXITED)
    return _settle(ledger, at, state="backoff")


def _on_announced(ledger: Ledger, at: float, action: Announce) -> Ledger:
    subject = whole_number(action.facts.get("pid")) or 0
    match action.message:
        case "training.suspected" if ledger.state == AT_WORK:
            return replace(ledger, state="suspected", suspected=at, subject=subject)
        case "training.stalled" if ledger.state in (AT_WORK, "suspected"):
            state = "stopped_by_user" if action.facts.get("judged") == "stopped" else "stalled"
            return replace(ledger, state=state, subject=subject)
        case "training.cleared" | "training.recovered" | "training.continued" if ledger.state in SILENT:
            return _goes_on(ledger, at)
        case "attempt.restarting" if ledger.state == EXITED:
            return _settle(ledger, at, "ending" if ledger.trains else "", state="backoff")
        case "run.unguarded":
            return _settle(ledger, at, state="unknown")
    return ledger


def _on_gap(ledger: Ledger, _at: float, event: events.ClockGap) -> Ledger:
    """The supervisor's clock stood still in a sleep; in a time without processor it did not."""
    if event.why != "asleep":
        return ledger
    return replace(ledger, spent=_added(ledger.spent, [("machine_asleep", event.seconds)]))


def _on_supervisor(ledger: Ledger, at: float, event: events.SupervisorRestarted) -> Ledger:
    """After a boot the clock is another one, and the attempt is over."""
    ledger = _settle(ledger, event.until)
    times = _added(ledger.spent, [("supervisor_absent", event.seconds)])
    return replace(ledger, spent=times, since=at, state="backoff" if event.rebooted else ledger.state)


def _on_concluded(ledger: Ledger, at: float, _action: Conclude) -> Ledger:
    return _settle(ledger, at, state=OVER)


_HANDLERS: dict[type, Callable[..., Ledger]] = {
    events.Launched: _on_launched, events.ProbeConnected: _on_connected, events.Heartbeat: _on_heartbeat,
    events.ProbeNote: _on_note, events.ProcessLeft: _on_left, Collect: _on_collect, events.Collected: _on_collected,
    Signal: _on_signal, events.Exited: _on_exited, events.Failed: _on_exited, Announce: _on_announced,
    events.ClockGap: _on_gap, events.SupervisorRestarted: _on_supervisor, Conclude: _on_concluded,
}  # fmt: skip


class ProcessPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process of the present attempt."""

    place: str = ""
    position: Position | None = None
    size: int = 0  # batches of an epoch; 0: not known
    progress: float = 0.0  # when it last made progress, seconds on the supervisor's clock
    input_s: float = 0.0  # seconds that it has waited for input so far


class Interruption(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that ended before the run did.  `goal`: how far its training was; None: not known."""

    place: str = ""
    goal: Position | None = None
    size: int = 0  # batches of an epoch of that training; 0: not known


def moved_on(process: ProcessPosition, heartbeat: events.Heartbeat) -> ProcessPosition:
    """Return where a process is after a record of its probe."""
    position = process.position
    if heartbeat.beats and heartbeat.epoch < 0:
        position = heartbeat.fits, -1, max(heartbeat.iterations, heartbeat.beats + heartbeat.skipped)
    elif heartbeat.beats:
        position = heartbeat.fits, heartbeat.epoch, max(heartbeat.batch, 0)
    return replace(
        process, position=position, size=max(heartbeat.batches, 0),
        progress=heartbeat.progress_at, input_s=heartbeat.input_s,
    )  # fmt: skip


def interrupted(processes: Mapping[int, ProcessPosition], pid: int) -> Interruption:
    """Return what an attempt came to when it ended: process `pid`, or the one with the last progress."""
    each = [processes[pid]] if pid in processes else list(processes.values())
    last = max(each, key=lambda one: (one.position is not None, one.progress), default=ProcessPosition())
    return Interruption(last.place, last.position, last.size)


def is_caught_up(interruption: Interruption, process: ProcessPosition) -> bool:
    """Return whether a process of a later attempt is as far as the interrupted one was."""
    if process.position is None or interruption.goal is None:
        return process.position is not None  # the attempt before came to no batch: none is trained again
    return process.place == interruption.place and process.position >= interruption.goal


def batches_trained_again(interruption: Interruption, process: ProcessPosition, resumed: Position) -> int | None:
    """Return how many batches lie between the position at which a process resumes and the interruption.

    None if that is not known.
    """
    if interruption.goal is None or interruption.place != process.place:
        return None
    fit, epoch, batch = interruption.goal
    known = fit == resumed[0] and epoch >= 0 and (interruption.size or epoch == resumed[1])
    return max(0, (epoch - resumed[1]) * interruption.size + batch - resumed[2]) if known else None

"""Which jobs of a store can start now, as a function of values.  dispatcher.py gives them to machines.

A job starts if no machine has it, and nothing that is known makes a start useless:

    what is known of the job                          what follows
    ------------------------------------------------  -----------------------------------------------
    an order to stop it, or an end with exit code 0   over
    an end that is the script's own                   over: another machine would fail in the same way
    a holder that renews its lease                    wait; a start would only be refused
    a holder that was silent for its whole lease      its machine has vanished: start elsewhere
    an end that is the machine's fault                that machine is cordoned: start elsewhere
    an end with 75, by SIGTERM, SIGINT or SIGHUP,     start again, with a pause that doubles: its machine shuts down,
    or one before it could begin                      or its hours are over; what ends a job for good is an order
    given to a machine that is gone, or that has      another machine can have it
    not begun it within half a minute
    no machine that offers what it needs              wait, and say so

"Silent" is judged by the dispatcher's own watch of the lease (lease.py), and the mark that it watched goes with the
job, so that the next machine need not watch for the same time again.

What has to start them (`Engine`) is the same for each engine.  This module must not read a clock or the store.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from stallguard.fleet.store.joblog import Tail
from stallguard.fleet.store.orders import Submission
from stallguard.fleet.store.records import HolderEnd

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0  # s before a job starts again that made no progress
BEGINS = 30.0  # s that a machine has to begin a job that it was given: it takes one message
SLOTS = "slots"  # the resource of which each job takes one

START, WAIT, OVER = "start", "wait", "over"
UNKNOWN = "the engine does not know it any more"


class ConnectedMachine(NamedTuple):
    """A machine that is connected to the engine.  `resources`: amounts by name, of all its jobs together.

    `worker`: the random name of its worker process.
    """

    host: str
    worker: str
    address: str
    resources: Mapping[str, float]


class JobView(NamedTuple):
    """What is known of a job.  `refusals`: why a machine cannot begin it, by host.

    `has_run_out`: whether its holder was silent for its whole lease; `is_judged`: whether that machine was cordoned for
    that once; `since`: seconds since the last start ended, or the first was possible; `idle`: starts in a row without
    progress; `address`: of the machine for which the engine has it, "" if it has not; `given`: seconds since then;
    `is_begun`: whether that machine has begun it.
    """

    submission: Submission
    tail: Tail
    is_stopped: bool = False
    refusals: Mapping[str, str] = {}
    has_run_out: bool = False
    is_judged: bool = False
    since: float = 0.0
    idle: int = 0
    address: str = ""
    given: float = 0.0
    is_begun: bool = False


class JobDecision(NamedTuple):
    """What to do with a job.  `addresses`: of the machines that can take it; `vanished`: the host that was silent."""

    do: str
    why: str = ""
    addresses: tuple[str, ...] = ()
    vanished: str = ""


class Fitting:
    """The machines of a turn, and which of them have what a job needs: found once for all that need the same."""

    def __init__(self, machines: Sequence[ConnectedMachine], cordoned: Collection[str]) -> None:
        """`cordoned`: hosts that take no job."""
        self.machines, self.cordoned = machines, frozenset(cordoned)
        self._found: dict[tuple[tuple[str, float], ...], tuple[list[ConnectedMachine], tuple[str, ...]]] = {}

    def of(self, needs: Mapping[str, float]) -> tuple[list[ConnectedMachine], tuple[str, ...]]:
        """Return the machines that offer it, and the addresses of those that are not cordoned."""
        kind = tuple(needs.items())
        if kind not in self._found:
            able = [one for one in self.machines if offers(one.resources, needs)]
            self._found[kind] = able, tuple(one.address for one in able if one.host not in self.cordoned)
        return self._found[kind]


def decide(view: JobView, known: Fitting) -> JobDecision:
    """Return what to do with a job now; START: a machine of those can have it as soon as it has room."""
    over = end_of(view.tail.outcome, is_stopped=view.is_stopped)
    if over:
        return JobDecision(OVER, over)
    holder = view.tail.claim.holder.host if view.tail.claim and not view.tail.is_free else ""
    if holder and not view.has_run_out:
        return JobDecision(WAIT, f"{holder} trains it")
    vanished = "" if view.is_judged else holder
    if view.is_begun and not vanished:
        return JobDecision(WAIT, "a machine begins it")
    pause = min(FIRST_PAUSE * 2.0 ** (view.idle - 1), LONGEST_PAUSE) if view.idle else 0.0
    if view.since < pause:
        return JobDecision(WAIT, f"it starts again {pause:.0f} s after its last end")
    fitting, left = known.of(needs_of(view.submission))
    if vanished or view.refusals:
        kept_out = {*view.refusals, *known.cordoned, vanished}
        left = tuple(one.address for one in fitting if one.host not in kept_out)
    if view.address in left and not vanished and view.given < BEGINS:
        return JobDecision(WAIT, "a machine gets it")
    if left:
        return JobDecision(START, "", left, vanished)
    return JobDecision(WAIT, _why_none(view, fitting, known.cordoned, known.machines), vanished=vanished)


def end_of(outcome: HolderEnd | None, *, is_stopped: bool) -> str:
    """Return in words why a job is over, "" if it is not."""
    if outcome is not None and outcome.is_finished:
        return "it is finished"
    if is_stopped or (outcome is not None and outcome.final):
        return "it was stopped"
    if outcome is None or outcome.goes_on:
        return ""
    return f"it failed: {outcome.why or f'exit code {outcome.code}'}"


def needs_of(submission: Submission) -> dict[str, float]:
    """Return the resources that a job takes while it runs."""
    return {SLOTS: 1.0, **submission.needs}


def offers(resources: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    """Return whether a machine has enough of each resource, if nothing else runs there."""
    return all(resources.get(name, 0.0) >= amount for name, amount in needs.items())


def _why_none(
    view: JobView, fitting: Sequence[ConnectedMachine], cordoned: Collection[str], machines: Sequence[ConnectedMachine]
) -> str:
    if not machines:
        return "no machine is connected"
    if not fitting:
        asked = ", ".join(f"{name}={amount:g}" for name, amount in sorted(needs_of(view.submission).items()))
        return f"no connected machine has what it needs ({asked})"
    refused = [f"{host}: {why}" for host, why in sorted(view.refusals.items())]
    kept_out = [one.host for one in fitting if one.host in cordoned]
    parts = [f"cordoned: {', '.join(kept_out)}"] if kept_out else []
    return "no machine can take it; " + "; ".join([*parts, *refused])


class Placed(NamedTuple):
    """How a start stands that the engine was given.  `failure`: why it ended without a result, "" if it has one.

    `is_begun`: whether a machine has begun it; until then it is queued.
    """

    is_over: bool
    failure: str = ""
    is_begun: bool = False


class Start(NamedTuple):
    """One start of a job, on a machine that has room for it now.

    `quiet`: the mark of a lease that was watched run out, "" if it was free.
    """

    job: str
    attempt: int
    needs: Mapping[str, float]
    address: str
    quiet: str


class Engine(Protocol):
    """Starts jobs on the machines that it is given, and notices machines that are gone."""

    def machines(self) -> list[ConnectedMachine]:
        """Return the machines that are connected."""

    def start(self, start: Start) -> None:
        """Start a job."""

    def placed(self, job: str) -> Placed:
        """Return how the last start of a job stands."""

    def forget(self, job: str) -> None:
        """Give up the last start of a job, if it has not begun."""

    def notify(self, address: str, job: str) -> None:
        """Have a machine look at the orders for a job; a message that is lost is like one that came late."""

    def retire(self, address: str) -> None:
        """Disconnect a machine; what is queued for it goes elsewhere."""

"""Attempts one after the other, decided by the policy alone: a function says how each of them ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stallguard.core.actions import Launch
from stallguard.core.events import Heartbeat
from stallguard.core.history import History
from stallguard.core.limits import DetectorLimits, PolicyLimits
from stallguard.core.policy import AttemptHistory, add_attempt, decide
from stallguard.core.readings import Device
from stallguard.core.verdicts import Decision, Finding
from tests.simulation.simulation import Simulation
from tests.simulation.subjects import OneTraining


class Ending(NamedTuple):
    """How an attempt ends: `at` is the batch it came to; `code` None for a stall."""

    cause: str
    at: int = 60
    lasted: float = 120.0
    code: int | None = None
    phase: str = "step"
    confidence: float = 0.8


class Attempt(NamedTuple):
    """How an attempt is run."""

    number: int
    factor: int
    device: str


class Night(NamedTuple):
    """The decisions of a night, and when each attempt began."""

    decisions: list[Decision]
    began: list[float]
    past: AttemptHistory

    @property
    def tries(self) -> list[tuple[int, str]]:
        """How every attempt after the first was to be run."""
        return [(d.slices, d.device) for d in self.decisions if d.action == "restart"]

    @property
    def end(self) -> Decision:
        return self.decisions[-1]


def live(
    training: Callable[[Attempt], Ending], limits: PolicyLimits | None = None, *, gpu: bool = False,
    rows: int | None = None, most: int = 200,
) -> Night:  # fmt: skip
    """Run a training until the policy does not restart it, `most` times at the most."""
    run, past = Simulation(OneTraining(DetectorLimits()), now=0.0, several=True), AttemptHistory()
    factor, device = 1, "default"
    decisions: list[Decision] = []
    began: list[float] = []
    for number in range(1, most + 1):
        began.append(run.now)
        ending = training(Attempt(number, factor, device))
        run.now += ending.lasted
        end(run, ending, gpu=gpu and device != "cpu", rows=rows)
        findings = (Finding(ending.cause, ending.confidence),)
        past = add_attempt(past, run.history, findings, factor, device, began[-1], run.now)
        decisions.append(decide(findings, past, limits or PolicyLimits()))
        if decisions[-1].action != "restart":
            break
        factor, device = decisions[-1].slices, decisions[-1].device
        run.now += decisions[-1].delay
        run.launch(Launch(number + 1, factor, device))
    return Night(decisions, began, past)


def end(run: Simulation, ending: Ending, *, gpu: bool = False, rows: int | None = None) -> Simulation:
    """Let the attempt of a run come to its end: its last record, and its exit if it is no stall."""
    if rows is not None:
        run.note("batch", rows=str(rows))
    if gpu:
        run.sampled(Device(used_by_run=True, moved=True))
    where = {"epoch": ending.at // 1000, "batch": ending.at % 1000, "phase": ending.phase}
    run.tell(Heartbeat, attempt=run.attempt, beats=ending.at, fits=1, **where)
    return run if ending.code is None else run.exit(ending.code)


def history_of(ending: Ending, *, gpu: bool = False, rows: int | None = None) -> History:
    """Return the history of a first attempt that ends so."""
    return end(Simulation(OneTraining(DetectorLimits()), several=True), ending, gpu=gpu, rows=rows).history

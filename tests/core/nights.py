"""Whole nights of attempts, decided by the policy alone: what happens to a training is a function of how it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from stallguard.core.events import Exited, Heard
from stallguard.core.history import History
from stallguard.core.limits import PolicyLimits
from stallguard.core.policy.attempts import Past, add_attempt
from stallguard.core.policy.decide import decide
from stallguard.core.verdicts import Decision, Finding


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
    past: Past

    @property
    def tries(self) -> list[tuple[int, str]]:
        """How every attempt after the first was to be run."""
        return [(d.factor, d.device) for d in self.decisions if d.action == "restart"]

    @property
    def end(self) -> Decision:
        return self.decisions[-1]


def live(
    training: Callable[[Attempt], Ending], limits: PolicyLimits | None = None, *, gpu: bool = False,
    rows: int | None = None, most: int = 200,
) -> Night:  # fmt: skip
    """Run a training until the policy does not restart it, `most` times at the most."""
    now, factor, device, past = 0.0, 1, "default", Past()
    decisions: list[Decision] = []
    began: list[float] = []
    for number in range(1, most + 1):
        began.append(now)
        ending = training(Attempt(number, factor, device))
        start, now = now, now + ending.lasted
        findings = (Finding(ending.cause, ending.confidence),)
        story = history_of(ending, now, gpu=gpu and device != "cpu", rows=rows)
        past = add_attempt(past, story, findings, factor, device, start, now)
        decisions.append(decide(findings, past, limits or PolicyLimits()))
        if decisions[-1].action != "restart":
            break
        factor, device, now = decisions[-1].factor, decisions[-1].device, now + decisions[-1].delay
    return Night(decisions, began, past)


def history_of(ending: Ending, now: float, *, gpu: bool = False, rows: int | None = None) -> History:
    heard = Heard(
        at=now,
        attempt=1,
        beats=ending.at,
        fits=1,
        epoch=ending.at // 1000,
        batch=ending.at % 1000,
        phase=ending.phase,
    )
    exited = None if ending.code is None else Exited(at=now, attempt=1, code=ending.code)
    return History(heard=heard, exited=exited, used_gpu=gpu, rows=rows)

"""What the core concludes, as values: a Judgement (is it stalled?), Findings (why?), a Decision (what now?).

The detector makes Judgements, diagnosis makes Findings, policy makes Decisions; nobody else does.
This module may not decide anything.
"""

from __future__ import annotations

import msgspec


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detector's opinion after an event.

    `step` is what a user sees: healthy, suspect, stalled, recovering, stopped (SIGSTOP), exited, off.
    `evidence` is the class of what the process tree did inside the gap: deadlock, external wait, spin,
    working, unknown.  `gap` and `threshold` are seconds on the watched clock.
    """

    step: str = "off"
    row: str = "FIRST"  # the detector's phase row (see detector)
    phase: str = "importing"
    evidence: str = "unknown"
    gap: float = 0.0
    threshold: float = 0.0
    since: float = 0.0  # monotonic seconds of the last progress
    certain: bool = False  # no waiting longer would change the opinion
    slow: float = 1.0  # batch time over its own baseline; > 1 slower (soft verdict)
    slow_cause: str = ""  # input, contention, heavier, memory, ""
    pulse: bool | None = None  # in a silence: a thread of the process could run (False: GIL held or stopped)


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause that fits, with the evidence for and against it, in words."""

    cause: str  # a key of diagnosis.CAUSES
    confidence: float  # 0..1
    since: float = 0.0
    evidence: tuple[str, ...] = ()  # sentences that speak for it
    against: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # what the user can change, most useful first
    mode: str = ""  # F1..F13 of metal_stalls.md where it matches one


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What policy wants done with an incident or an exit.

    `action`: wait, restart, give_up, finish, notify.  `factor`, `device`: of the next attempt.
    `delay`: seconds before it.  `why`: one sentence.  `mathematics`: one sentence on what changes for the
    training.  `resume`: whether the next attempt uses the checkpoints.
    """

    action: str
    why: str
    factor: int = 1
    device: str = "default"
    delay: float = 0.0
    code: int = 0
    mathematics: str = "nothing changes for the mathematics of the training"
    resume: bool = True

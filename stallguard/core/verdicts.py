"""What the core concludes, as values: a Judgement (is it stalled?), Findings (why?), a Decision (what now?).

Only the detector makes Judgements, only diagnosis makes Findings, only policy makes Decisions.
This module must not decide anything.
"""

from __future__ import annotations

import msgspec


class Judgement(msgspec.Struct, frozen=True, omit_defaults=True):
    """The detector's verdict after an event.

    `step` is what a user sees: healthy, suspect, stalled, recovering, stopped (SIGSTOP), exited, off.
    `evidence` is the class of what the process tree did inside the gap: deadlock, external wait, spin,
    working, shared device, unknown.  `gap` and `threshold` are seconds on the watched clock.
    """

    step: str = "off"
    row: str = "FIRST"  # the detector's phase row (see detector)
    phase: str = "importing"
    evidence: str = "unknown"
    gap: float = 0.0
    threshold: float = 0.0
    since: float = 0.0  # monotonic seconds of the last progress
    certain: bool = False  # a longer wait would not change the verdict
    slow: float = 1.0  # batch time over its own baseline; > 1 slower (soft verdict)
    slow_cause: str = ""  # input, contention, heavier, memory, ""
    pulse: bool | None = None  # in a gap: a thread of the process could run (False: GIL held or stopped)
    timers_known: bool = False  # how many threads of the runtime wait with a timer: one more is the script's


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cause that fits, with the evidence for and against it, in words."""

    cause: str  # a key of diagnosis.causes.CAUSES
    confidence: float  # 0..1
    since: float = 0.0
    evidence: tuple[str, ...] = ()  # sentences for it
    against: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()  # what the user can change, most useful first
    mode: str = ""  # F1..F13 of the reports on Metal training, if it is one of them


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What policy orders after an incident or an exit.

    `action`: wait, restart, give_up, finish, notify.  `slices`, `device`: of the next attempt.
    `delay`: seconds before it.  `why`: one sentence.  `mathematics`: one sentence on what changes for the
    training.  `resume`: whether the next attempt uses the checkpoints.
    """

    action: str
    why: str
    slices: int = msgspec.field(default=1, name="factor")
    device: str = "default"
    delay: float = 0.0
    code: int = 0
    mathematics: str = "neither the batch nor the device changes"
    resume: bool = True


class Bottleneck(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that makes a training slow, with what it cost so far."""

    kind: str  # a key of bottleneck_kinds.KINDS
    seconds: float  # of this training, so far
    share: float  # of the time that was watched, 0..1
    where: str = ""  # the place in the script, as a user reads it
    file: str = ""  # the script's file with that place
    line: int = 0  # of that file
    evidence: tuple[str, ...] = ()  # sentences with numbers
    advice: tuple[str, ...] = ()  # what the user can change, most useful first

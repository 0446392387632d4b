"""A make-believe night, told to the same history and detector that a live run feeds.

Counters rise by the rates that are set with `be(...)`; `train`, `silent` and `pause` let time pass.  Darwin
stories have no census of wait sites, Linux ones have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from stallguard.core import history
from stallguard.core.detection import detector
from stallguard.core.diagnosis import diagnose
from stallguard.core.diagnosis.signatures import BY_ID, SCRIPT_ERROR, TRACEBACK
from stallguard.core.events import (
    Collected,
    Event,
    Exited,
    Greeted,
    Heard,
    Launched,
    Left,
    Matched,
    Noted,
    Sampled,
    SensorBlocked,
    Slept,
    Ticked,
    Unkillable,
)
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Machine, Memory, Process
from stallguard.core.verdicts import Finding

LIMITS = DetectorLimits()
GIB = 2**30
IDLE_CENSUS = {"futex": 12, "sleep": 1, "timed": 1}


@dataclass
class Rates:
    """What a second brings."""

    cores: float = 0.8
    io: float = 0.0
    faults: float = 20.0
    page_ins: float = 0.0
    grown: float = 0.0  # bytes of footprint
    swapped: float = 0.0  # bytes
    run_queue: float = 0.0
    sock: int = 0  # threads that wait for a socket


@dataclass
class Story:
    """Feeds events; `now` is the supervisor's clock."""

    linux: bool = False
    now: float = 1000.0
    batch: float = 0.25  # seconds a batch
    device: Device | None = None
    memory: Memory = field(default_factory=lambda: Memory(total=16 * GIB, swap_outs=0))
    machine: Machine = field(default_factory=lambda: Machine(idle=0.8, busiest=()))
    rates: Rates = field(default_factory=Rates)
    pulses: bool = True
    state: str = "running"
    launched: bool = False  # by another program, which is the child

    def __post_init__(self) -> None:
        self.history = history.History()
        self.judge = detector.start(LIMITS)
        self.tree = Process(cpu=0.0, io=0, minor_faults=0, major_faults=0, run_queue=0.0, footprint=2 * GIB)
        self.heard = Heard(
            at=self.now, attempt=1, source="callbacks", sent_at=self.now, progress_at=self.now,
            pid=42 * self.launched, trains=self.launched,
        )  # fmt: skip
        self.ended: Exited | None = None
        self.events: list[Event] = []
        self.feed(Launched(at=self.now, attempt=1, pid=7 if self.launched else 42))
        self.tell(
            Greeted, attempt=1, pid=42, armed=True, hooks=("callbacks",), versions={"tensorflow": "2.18.1"},
            place="2-1" * self.launched,
        )  # fmt: skip
        self.feed(replace(self.heard, at=self.now))

    # ---- feeding ----------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        self.events.append(event)
        self.history = history.remember(self.history, event)
        self.judge = detector.observe(self.judge, event, LIMITS)

    def tell(self, kind: type[Event], **facts: Any) -> Story:
        self.feed(kind(at=self.now, **facts))
        return self

    def be(self, **changes: Any) -> Story:
        """Set rates, `state`, `pulses`, or fields of device_, memory_ and machine_ (by prefix)."""
        for name, value in changes.items():
            owner, _, part = name.partition("_")
            if owner in ("device", "memory", "machine") and part:
                setattr(self, owner, replace(getattr(self, owner), **{part: value}))
            elif hasattr(self.rates, name):
                setattr(self.rates, name, value)
            else:
                setattr(self, name, value)
        return self

    def line(self, signature: str, text: str = "") -> Story:
        family = SCRIPT_ERROR if signature == TRACEBACK else BY_ID[signature].family
        return self.tell(Matched, signature=signature, family=family, line=text or signature)

    def stacks(self, *classes: str) -> Story:
        return self.tell(Collected, incident=1, seconds=1.0, stacks=classes)

    def note(self, kind: str, **facts: str) -> Story:
        return self.tell(Noted, attempt=1, kind=kind, text=kind, facts=facts)

    def blocked(self, sensor: str) -> Story:
        return self.tell(SensorBlocked, sensor=sensor, seconds=3.0)

    def sleep(self, seconds: float) -> Story:
        return self.tell(Slept, seconds=seconds)

    def unkillable(self) -> Story:
        return self.tell(Unkillable, attempt=1, state="exiting")

    # ---- living -----------------------------------------------------------------------------------------

    def train(self, seconds: float, phase: str = "step", input_share: float = 0.0, **changes: Any) -> Story:
        """Train for `seconds`, in epochs of 1000 batches of ten."""
        for _ in range(int(seconds)):
            self.second()
            done = max(1, round(1 / self.batch))
            beats = self.heard.beats + done
            facts = {
                "phase": phase, "beats": beats, "beat_at": self.now, "fits": 1, "fit_beats": beats, "epochs": 10,
                "epoch": beats // 1000, "batch": beats % 1000, "batches": 1000, "longest": self.batch,
                "longest_phase": phase, "input_s": self.heard.input_s + input_share,
                "step_s": self.heard.step_s + 1 - input_share, "iterations": beats, "poll_at": self.now,
            }  # fmt: skip
            self.progress(**(facts | changes))
        return self

    def progress(self, **changes: Any) -> Story:
        """Let the training report something just now."""
        self.heard = replace(
            self.heard,
            at=self.now,
            sent_at=self.now,
            progress_at=self.now,
            changes=self.heard.changes + 1,
            **changes,
        )
        self.feed(self.heard)
        return self

    def enter(self, phase: str, **changes: Any) -> Story:
        return self.progress(phase=phase, phase_at=self.now, **changes)

    def silent(self, seconds: float) -> Story:
        """Let `seconds` pass without progress."""
        for _ in range(int(seconds)):
            self.second()
            if self.pulses:
                self.feed(replace(self.heard, at=self.now, sent_at=self.now, longest=0.0))
            else:
                self.tell(Ticked)
        return self

    def second(self) -> None:
        """Let one second pass for everything outside of the training."""
        self.now += 1.0
        rates, old = self.rates, self.tree
        self.tree = Process(
            state=self.state, cpu=(old.cpu or 0) + rates.cores, io=int((old.io or 0) + rates.io),
            minor_faults=int((old.minor_faults or 0) + rates.faults),
            major_faults=int((old.major_faults or 0) + rates.page_ins),
            run_queue=(old.run_queue or 0) + rates.run_queue, footprint=int((old.footprint or 0) + rates.grown),
            census=self.census() if self.linux else None,
        )  # fmt: skip
        self.tell(Sampled, reading=self.tree)
        self.memory = replace(self.memory, swap_outs=int((self.memory.swap_outs or 0) + rates.swapped))
        if self.now % 2 == 0:
            self.tell(Sampled, reading=self.memory)
            if self.device is not None:
                self.tell(Sampled, reading=self.device)
        if self.now % 5 == 0:
            self.tell(Sampled, reading=self.machine)

    def census(self) -> dict[str, int]:
        return IDLE_CENSUS | {"run": int(self.rates.cores > 0.5), "sock": self.rates.sock}

    # ---- asking -----------------------------------------------------------------------------------------

    def vanish(self) -> Story:
        """The training that was launched is gone; the child lives."""
        return self.tell(Left, attempt=1, pid=42, how="vanished")

    def exit(self, code: int, memory_kill: bool | None = None) -> Story:
        self.ended = Exited(at=self.now, attempt=1, code=code, memory_kill=memory_kill)
        self.feed(self.ended)
        return self

    def findings(self) -> tuple[Finding, ...]:
        if self.ended is not None:
            return diagnose.diagnose_exit(self.history, self.ended)
        return diagnose.diagnose(self.history, self.judge.judgement, self.now)

    def later(self) -> tuple[Finding, ...]:
        """What is known between two attempts."""
        return diagnose.diagnose(self.history, self.judge.judgement, self.now)

"""A run of several processes and the machine under it: the probes' words and the sensors' readings of each."""

from __future__ import annotations

import dataclasses

from stallguard.core import fold
from stallguard.core.actions import Action, Collect, Launch, Signal, Tell
from stallguard.core.events import (
    Collected,
    Event,
    Exited,
    Greeted,
    Heard,
    Launched,
    Left,
    Noted,
    Sampled,
    Ticked,
)
from stallguard.core.limits import Limits
from stallguard.core.readings import Process
from tests.core.world import LIMITS

TICK = 0.25  # seconds


@dataclasses.dataclass
class Script:
    """One process: a batch each `step` seconds while it is not stuck; a step of 0 is a launcher that never trains."""

    pid: int
    step: float = 0.5
    stuck: bool = False
    busy: bool = False  # while it is stuck
    beats: int = 0
    cpu: float = 0.0
    due: float = 0.0
    progress: float = 0.0
    place: str = ""
    phase: str = ""  # that it is always in; "": as it trains


class Several:
    """Performs actions as a machine would; keeps what was done, and when."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits, self.now = limits, 100.0
        self.scripts: dict[int, Script] = {}
        self.done: list[tuple[float, Action]] = []
        self.run, actions = fold.begin(limits, self.now)
        self._perform(actions)

    # ---- what happens

    def tell(self, event: Event) -> None:
        self.run, actions = fold.advance(self.run, event, self.limits)
        self._perform(actions)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self.done.append((self.now, action))
            if isinstance(action, Launch):
                self.tell(Launched(at=self.now, attempt=action.attempt, pid=7))
            elif isinstance(action, Collect):
                self.tell(Collected(at=self.now, incident=action.incident, seconds=0.1))
            elif isinstance(action, Signal):
                self.exit(-15)

    def start(self, pid: int, step: float = 0.5, **more: object) -> Script:
        """Begin a process: it reports, and trains from the next tick on."""
        script = self.scripts[pid] = Script(pid, step, due=self.now + step, progress=self.now, **more)
        self.tell(self.heard(script))
        place = script.place or f"place-{pid}"
        self.tell(
            Greeted(
                at=self.now, attempt=self.attempt, pid=pid, armed=True, place=place, command=f"t.py {pid}"
            )
        )
        return script

    def leave(self, pid: int, how: str = "ended") -> None:
        del self.scripts[pid]
        self.tell(Left(at=self.now, attempt=self.attempt, pid=pid, how=how))

    def note(self, pid: int, text: str, kind: str = "resume", **facts: str) -> None:
        self.tell(Noted(at=self.now, attempt=self.attempt, pid=pid, kind=kind, text=text, facts=facts))

    def exit(self, code: int) -> None:
        self.scripts.clear()
        self.tell(Exited(at=self.now, attempt=self.attempt, code=code))

    def go_on(self, seconds: float, tick: float = TICK) -> Several:
        """Let time pass; `tick`: seconds between two readings, which are 1 while nobody is in doubt."""
        until = self.now + seconds
        while self.now < until:
            self.now += tick
            for script in list(self.scripts.values()):
                self._live(script, tick)
            self._sample()
            self.tell(Ticked(at=self.now))
        return self

    def _live(self, script: Script, tick: float) -> None:
        working = script.busy if script.stuck else bool(script.step)
        script.cpu += 0.9 * tick * working
        if script.step and not script.stuck and self.now >= script.due:
            script.beats += max(1, round(tick / script.step))
            script.due, script.progress = self.now + script.step, self.now
        if script.pid in self.scripts and self.now % 1.0 < TICK:
            self.tell(self.heard(script))

    def _sample(self) -> None:
        """Read each training's tree, or the whole one while nobody trains."""
        trains = {one.pid for one in self.run.trainings if one.trains and not one.over}
        readings = [
            Process(pid=pid, state="sleeping", cpu=self.scripts[pid].cpu, io=0, minor_faults=0)
            for pid in trains & self.scripts.keys()
        ]
        cpu = sum(script.cpu for script in self.scripts.values())
        for reading in readings or [Process(state="sleeping", cpu=cpu, io=0, minor_faults=0)]:
            self.tell(Sampled(at=self.now, reading=reading))

    def heard(self, script: Script) -> Heard:
        trained = script.beats > 0
        return Heard(
            at=self.now, attempt=self.attempt, pid=script.pid, trains=trained, beats=script.beats,
            beat_at=script.progress if trained else 0.0, phase=script.phase or ("step" if trained else "importing"),
            phase_at=script.progress, progress_at=script.progress, changes=2 * script.beats, sent_at=self.now,
            longest=script.step, longest_phase="step", fits=int(trained), fit_beats=script.beats,
            epoch=0 if trained else -1, batch=script.beats if trained else -1, batches=10**6,
            source="callbacks" if trained else "none", step_s=script.beats * script.step,
        )  # fmt: skip

    # ---- what came of it

    @property
    def attempt(self) -> int:
        return max(1, self.run.attempt)

    def judgement(self, pid: int) -> str:
        return next(one for one in self.run.trainings if one.pid == pid).judge.judgement.step

    def actions(self, kind: type[Action]) -> list[Action]:
        return [action for _, action in self.done if isinstance(action, kind)]

    def when(self, kind: type[Action]) -> list[float]:
        return [at for at, action in self.done if isinstance(action, kind)]

    def told(self, kind: str) -> list[dict[str, str]]:
        return [action.facts for action in self.actions(Tell) if action.kind == kind]

"""A run and the machine under it, for tests of the whole core: what the core wants done is done at once."""

from __future__ import annotations

import dataclasses

from stallguard.core import fold
from stallguard.core.actions import Action, Ask, Collect, Launch, Signal, Tell
from stallguard.core.events import Collected, Event, Exited, Greeted, Heard, Launched, Noted, Sampled, Ticked
from stallguard.core.limits import DetectorLimits, Limits, PolicyLimits, StopLimits
from stallguard.core.readings import Process
from stallguard.core.run import Run

LIMITS = Limits(
    detector=DetectorLimits(patience=0.2, act_after=30.0),
    policy=PolicyLimits(max_restarts=3, restart_window=600.0, on_stall="restart", backoff=1.0),
    stop=StopLimits(grace=5.0, kill_wait=5.0),
)


@dataclasses.dataclass
class World:
    """Performs actions as a machine would, at `now`; keeps what was done, and when."""

    limits: Limits = LIMITS
    obeys: bool = True  # the child ends on SIGTERM
    mortal: bool = True  # ... or at least on SIGKILL
    now: float = 100.0
    beats: int = 0
    cpu: float = 0.0
    polite: bool = True  # the probe has the framework end when it is asked to
    alive: bool = False
    checkpoints: bool = True  # the training has made one
    run: Run | None = None
    done: list[tuple[float, Action]] = dataclasses.field(default_factory=list)
    seen: list[Event] = dataclasses.field(default_factory=list)

    def start(self) -> World:
        self.run, actions = fold.begin(self.limits, self.now)
        self._perform(actions)
        return self

    def tell(self, event: Event) -> None:
        assert self.run is not None
        self.seen.append(event)
        self.run, actions = fold.advance(self.run, event, self.limits)
        self._perform(actions)

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            self.done.append((self.now, action))
            self._do(action)

    def _do(self, action: Action) -> None:
        if isinstance(action, Launch):
            self.alive, self.beats = True, 0
            resumed = action.resume and self.checkpoints
            self.tell(
                Launched(at=self.now, attempt=action.attempt, pid=7, factor=action.factor, resumed=resumed)
            )
            self.tell(Greeted(at=self.now, attempt=action.attempt, pid=7, armed=True))
        elif isinstance(action, Collect):
            self.tell(Collected(at=self.now, incident=action.incident, seconds=0.1))
        elif isinstance(action, Ask) and self.alive and self.polite:
            self.tell(Noted(at=self.now, attempt=action.attempt, kind="stop", text="asked to end this fit"))
            self.exit(0)
        elif isinstance(action, Signal) and self.alive:
            ends = (action.name == "TERM" and self.obeys) or (action.name == "KILL" and self.mortal)
            if ends:
                self.exit(-9 if action.name == "KILL" else -15)

    def exit(self, code: int) -> None:
        if self.alive and self.run is not None:
            self.alive = False
            self.tell(Exited(at=self.now, attempt=self.run.attempt, code=code))

    def train(self, seconds: float, *, every: float = 0.5, stuck: bool = False) -> None:
        """Let time pass with a batch each `every` seconds, or silent with an idle processor."""
        until = self.now + seconds
        while self.now < until:
            self.now += every
            if self.alive and not stuck:
                self.beats += 1
                self.cpu += every * 0.9
                self.tell(self.heard())
            if self.alive:
                self.tell(
                    Sampled(
                        at=self.now, reading=Process(state="sleeping", cpu=self.cpu, io=0, minor_faults=0)
                    )
                )
            self.tell(Ticked(at=self.now))

    def heard(self) -> Heard:
        assert self.run is not None
        return Heard(
            at=self.now, attempt=self.run.attempt, beats=self.beats, beat_at=self.now, phase="step",
            phase_at=self.now, progress_at=self.now, changes=2 * self.beats, sent_at=self.now, longest=0.5,
            longest_phase="step", fits=1, fit_beats=self.beats, epoch=0, batch=self.beats, batches=10**6,
            source="callbacks",
        )  # fmt: skip

    def actions(self, kind: type[Action]) -> list[Action]:
        return [action for _, action in self.done if isinstance(action, kind)]

    def told(self) -> list[str]:
        return [action.kind for action in self.actions(Tell) if isinstance(action, Tell)]

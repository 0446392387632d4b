"""A run without processes: the clock, the programs of the run, the readings of the machine, and answers to actions.

It feeds a subject (tests/simulation/subjects.py): the whole core, each of whose actions is answered at once as a
machine would answer, or the detector and the history of one training, which give no actions.
"""

from __future__ import annotations

from typing import Any, Self

from msgspec.structs import replace

from stallguard.core.actions import Action, Ask, Collect, Launch, Signal
from stallguard.core.detection import detector
from stallguard.core.detection.verdict import DetectorState
from stallguard.core.diagnosis import diagnose
from stallguard.core.diagnosis.signatures import BY_ID, SCRIPT_ERROR, TRACEBACK
from stallguard.core.events import (
    ClockGap,
    Collected,
    Event,
    Exited,
    Heartbeat,
    Launched,
    Matched,
    ProbeConnected,
    ProbeNote,
    ProcessLeft,
    Sampled,
    Ticked,
    UserCommand,
)
from stallguard.core.history import History
from stallguard.core.limits import DetectorLimits, Limits, PolicyLimits, StopLimits
from stallguard.core.readings import Process, Reading
from stallguard.core.run import Run
from stallguard.core.verdicts import Finding
from tests.simulation.kept import Kept
from tests.simulation.program import IDLE, SILENCES, Program, Rates
from tests.simulation.subjects import Subject, WholeCore
from tests.simulation.system import System

LIMITS = Limits(
    detector=DetectorLimits(patience=0.2, act_after=30.0),
    policy=PolicyLimits(max_restarts=3, restart_window=600.0, on_stall="restart", backoff=1.0),
    stop=StopLimits(grace=5.0),
)
LOOK = 0.5  # seconds between two looks of the probe at the frames of a program
PULSE = 1.0  # seconds between two records of a program without progress


class Simulation(Kept):
    """Feeds a subject with events; keeps the events, and the actions with their times.

    `tick`: seconds between two readings of the process tree; 0: as often as the detector wants them.
    `several`: the test starts the programs of an attempt itself; else each attempt is one program that trains.
    """

    def __init__(
        self, subject: Subject | Limits = LIMITS, *, now: float = 100.0, tick: float = 0.5, batch: float = 0.5,
        several: bool = False, ends_on_term: bool = True, ends_on_kill: bool = True, ends_if_asked: bool = True,
        checkpoints: bool = True, evidence: bool = True, pid: int = 7,
    ) -> None:  # fmt: skip
        super().__init__()
        self.subject = WholeCore(subject) if isinstance(subject, Limits) else subject
        self.now, self.tick, self.batch, self.several = now, tick, batch, several
        # Whether the child ends on SIGTERM, and on SIGKILL.
        self.ends_on_term, self.ends_on_kill = ends_on_term, ends_on_kill
        self.ends_if_asked = ends_if_asked  # whether the training ends when its probe is asked to stop it
        self.checkpoints = checkpoints  # whether each attempt makes one, which the next one can resume
        self.evidence = evidence  # whether evidence is collected, at once
        self.pid = pid  # of the first attempt's child
        self.alive = False
        self.programs: dict[int, Program] = {}
        self.system = System(now)
        self.stacks_found: tuple[str, ...] = ()
        self.ended: Exited | None = None
        # In a time without progress: the fields that all programs have, and those that each had before.
        self._silence: dict[str, Any] | None = None
        self._silenced: list[tuple[Program, dict[str, Any]]] = []
        self._answer_all(self.subject.begin(now))

    # ---- events -----------------------------------------------------------------------------------------

    def feed(self, event: Event) -> None:
        """Feed the subject with an event, and answer its actions."""
        self.events.append(event)
        before = self.detector_state.judgement.step
        actions = self.subject.take(event)
        after = self.detector_state.judgement
        if after.step != before:
            self.changes.append((event.at, after.step, after.evidence))
        self._answer_all(actions)

    def tell(self, kind: type[Event], /, **facts: Any) -> Self:
        """Feed an event of a kind that happens now."""
        self.feed(kind(at=self.now, **facts))
        return self

    def sampled(self, reading: Reading) -> Self:
        """Feed a reading of a sensor."""
        return self.tell(Sampled, reading=reading)

    def ask(self, verb: str, argument: str = "") -> Self:
        """Feed a command of the user."""
        return self.tell(UserCommand, verb=verb, argument=argument)

    def note(self, kind: str, text: str = "", pid: int = 0, **facts: str) -> Self:
        """Feed a note of the probe."""
        return self.tell(ProbeNote, attempt=self.attempt, pid=pid, kind=kind, text=text, facts=facts)

    def line(self, signature: str, text: str = "") -> Self:
        """Feed a printed line that has a known signature."""
        family = SCRIPT_ERROR if signature == TRACEBACK else BY_ID[signature].family
        return self.tell(Matched, signature=signature, family=family, line=text or signature)

    def stacks(self, *classes: str, where: str = "") -> Self:
        """Feed the end of a collection of evidence; `classes`: of the innermost frames; `where`: it hangs."""
        self.stacks_found = classes
        return self.tell(Collected, incident=1, seconds=1.0, stacks=classes, where=where)

    def sleep(self, seconds: float, *, clock_runs: bool = False) -> Self:
        """Feed a sleep of the machine that ends now.  `clock_runs`: the supervisor's clock counts it."""
        self.now += seconds if clock_runs else 0.0
        return self.tell(ClockGap, seconds=seconds)

    # ---- answers ----------------------------------------------------------------------------------------

    def _answer_all(self, actions: list[Action]) -> None:
        for action in actions:
            self.done.append((self.now, action))
            self.answer(action)

    def answer(self, action: Action) -> None:
        """Answer an action as a machine would."""
        match action:
            case Launch():
                self.launch(action)
            case Collect(incident=incident) if self.evidence:
                self.tell(Collected, incident=incident, seconds=0.1)
            case Ask(attempt=attempt, command="stop") if self.alive and self.ends_if_asked:
                self.tell(ProbeNote, attempt=attempt, kind="stop", text="asked to end this fit")
                self.exit(0)
            case Signal(name="TERM") if self.alive and self.ends_on_term:
                self.exit(-15)
            case Signal(name="KILL") if self.alive and self.ends_on_kill:
                self.exit(-9)

    def launch(self, action: Launch) -> None:
        """Start an attempt: a child process, and its program unless the test starts the programs."""
        self.alive = True
        attempt, pid = action.attempt, self.pid + action.attempt - 1
        resumed = action.resume and self.checkpoints
        how = {"slices": action.slices, "device": action.device, "resumed": resumed}
        self.tell(Launched, attempt=attempt, pid=pid, **how)
        if not self.several:
            self.start()

    def first_record(self) -> dict[str, Any]:
        """Return what the first record of a program says beside its defaults; tests replace this."""
        return {}

    def start(
        self, pid: int = 0, batch: float | None = None, *, place: str | None = None,
        hello: dict[str, Any] | None = None, record: dict[str, Any] | None = None, **more: Any,
    ) -> Program:  # fmt: skip
        """Start a program: its probe says hello and sends a record.  `more`: fields of Program."""
        here = f"place-{pid}" if pid and place is None else place or ""
        said = {"pid": pid or self.pid + self.attempt - 1, "armed": True, "place": here, "command": f"t.py {pid}"}
        self.tell(ProbeConnected, attempt=self.attempt, **(said | (hello or {})))
        facts = {"source": "none" if pid else "callbacks", "phase_at": self.now, "batches": 10**6}
        facts |= self.first_record() | (record or {})
        first = Heartbeat(at=self.now, attempt=self.attempt, pid=pid, progress_at=self.now, sent_at=self.now, **facts)
        more = {"stuck_rates": IDLE} | more
        step = self.batch if batch is None else batch
        program = self.programs[pid] = Program(first, pid, step, due=self.now + step, **more)
        self._silence_one(program)
        self.feed(first)
        return program

    def leave(self, pid: int, how: str = "ended") -> Self:
        """Remove a program that ends while the child continues."""
        self.programs.pop(pid, None)
        return self.tell(ProcessLeft, attempt=self.attempt, pid=pid, how=how)

    def exit(self, code: int = 0, memory_kill: bool | None = None, **crash: str) -> Self:
        """End the child, if there is one.  `crash`: where and in which process it crashed."""
        if self.alive:
            self.alive = False
            self.programs.clear()
            self.ended = Exited(at=self.now, attempt=self.attempt, code=code, memory_kill=memory_kill, **crash)
            self.feed(self.ended)
        return self

    # ---- the program of an attempt that has one -----------------------------------------------------------

    @property
    def training(self) -> Program:
        """The first program that lives."""
        return next(iter(self.programs.values()))

    @property
    def heartbeat(self) -> Heartbeat:
        """Its newest record."""
        return self.training.record

    @property
    def tree(self) -> Process:
        """The newest reading of its process tree."""
        return self.training.tree

    def progress(self, program: Program | None = None, **changes: Any) -> Self:
        """Send a record of something that a program did just now."""
        one = program or self.training
        old = one.record
        news = {"at": self.now, "sent_at": self.now, "progress_at": self.now, "changes": old.changes + 1}
        news |= {"wait": "", "wait_at": 0.0, "wakers": -1}
        one.record = replace(old, **(news | changes))
        self.feed(one.record)
        return self

    def enter(self, phase: str, **changes: Any) -> Self:
        """Enter a phase."""
        old = self.heartbeat
        pause = {"longest": self.now - old.progress_at, "longest_phase": old.phase}
        return self.progress(**(pause | {"phase": phase, "phase_at": self.now} | changes))

    def pulse(self, program: Program | None = None) -> Self:
        """Send a record without progress."""
        one = program or self.training
        one.record = replace(one.record, at=self.now, sent_at=self.now, longest=0.0)
        if one.frame[0]:
            since = one.record.wait_at or one.record.progress_at + LOOK
            one.record = replace(one.record, wait=one.frame[0], wait_at=since, wakers=one.frame[1])
        self.feed(one.record)
        return self

    def sample(self, **changes: Any) -> Self:
        """Read the process tree of the first program, after some counters of it have changed."""
        self.training.tree = replace(self.training.tree, **changes)
        return self.sampled(self._seen(self.training.tree))

    def _seen(self, tree: Process) -> Process:
        """Return a reading: a census is taken if the detector wants one."""
        return tree if self.wanted.census else replace(tree, census=None)

    def be(self, **changes: Any) -> Self:
        """Set rates or fields of the first program, or fields of device_, memory_ and machine_ (by prefix)."""
        for name, value in changes.items():
            if not self.system.set(name, value):
                one = self.training
                setattr(one.rates if name in Rates.__dataclass_fields__ else one, name, value)
        return self

    # ---- time ---------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> detector.Wanted:
        """What the detector wants of the process sensor now."""
        return detector.wanted(self.detector_state, self.subject.detector_limits)

    def go_on(self, seconds: float, tick: float = 0.0, **batches: Any) -> Self:
        """Let time pass; each program trains, unless it is stuck.

        `batches`: arguments of Program.train, or fields of the records.
        """
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.second(tick or self.tick or self.wanted.period, **batches)
        return self

    def train(self, seconds: float, *, every: float = 0.0, **batches: Any) -> Self:
        """Let time pass in which all programs train, in batches of `every` seconds if that is given."""
        for one in self.programs.values():
            one.stuck = False
            one.batch, one.due = (every, self.now + every) if every else (one.batch, one.due)
        return self.go_on(seconds, every, **batches)

    def silent(
        self, seconds: float, how: str = "", *, pulses: bool | None = None, state: str = "", tick: float = 0.0,
        frame: tuple[str, int] | None = None,
    ) -> Self:  # fmt: skip
        """Let time pass without progress; `how`: of SILENCES; `pulses`, `state`, `frame`: of the programs."""
        given = {"stuck_rates": SILENCES.get(how), "pulses": pulses, "state": state or None, "frame": frame}
        self._silence = {name: value for name, value in given.items() if value is not None}
        self._silenced = []
        for one in self.programs.values():
            self._silence_one(one)
        self.go_on(seconds, tick)
        for one, before in self._silenced:
            vars(one).update(before)
        self._silence = None
        return self

    def _silence_one(self, one: Program) -> None:
        """Make a program stuck in a time without progress; also one that starts in that time."""
        if self._silence is not None:
            self._silenced.append((one, {name: getattr(one, name) for name in self._silence}))
            vars(one).update(self._silence, stuck=True)

    def silent_until(self, step: str, how: str = "", *, within: float = 1000.0, **more: Any) -> float:
        """Let time pass without progress until the detector's step is `step`; return the seconds, infinity if never."""
        began = self.now
        while self.now - began < within:
            self.silent(0.25, how, **more)
            if self.detector_state.judgement.step == step:
                return self.now - began
        return float("inf")

    def second(self, seconds: float = 1.0, **batches: Any) -> Self:
        """Let `seconds` pass in one step: then come readings, records and a tick."""
        self.now += seconds
        how = {name: batches.pop(name) for name in ("phase", "input_share") if name in batches}
        for one in self.programs.values():
            one.use(seconds)
        self._read(seconds)
        for one in list(self.programs.values()):
            if one.pid not in self.programs:
                continue  # the answer to an earlier event has ended it
            if one.trains_now(self.now):
                self.progress(one, **(one.train(self.now, seconds, **how) | batches))
            elif one.pulses and self.now - one.record.at >= PULSE - 1e-9:
                self.pulse(one)
        return self.tell(Ticked)

    def wait(self, seconds: float) -> Self:
        """Let time pass in which nothing is read and no record comes."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 1.0
            self.tell(Ticked)
        return self

    def _read(self, seconds: float) -> None:
        for reading in self._trees() if self.alive else []:
            self.sampled(self._seen(reading))
        for reading in self.system.pass_time(self.now, seconds):
            self.sampled(reading)

    def _trees(self) -> list[Process]:
        """Return the trees that are read: one for each program that trains, else that of the whole child."""
        every = list(self.programs.values())
        trees = [replace(one.tree, pid=one.pid) for one in every if one.pid and one.record.trains]
        if trees:
            return trees
        whole = every[0].tree if every else Process(state="sleeping", io=0, minor_faults=0)
        return [replace(whole, cpu=sum(one.tree.cpu or 0.0 for one in every))]

    # ---- what follows -------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The value of the whole core."""
        assert isinstance(self.subject, WholeCore)
        return self.subject.run

    @run.setter
    def run(self, run: Run) -> None:
        assert isinstance(self.subject, WholeCore)
        self.subject.run = run

    @property
    def limits(self) -> Limits:
        """The settings of the whole core."""
        assert isinstance(self.subject, WholeCore)
        return self.subject.limits

    @property
    def detector_state(self) -> DetectorState:
        """The detector's value, of the training in focus."""
        return self.subject.detector_state

    @property
    def history(self) -> History:
        """What is kept of the attempt, of the training in focus."""
        return self.subject.history

    @property
    def attempt(self) -> int:
        """The number of the attempt; 1 before the first."""
        return max(1, self.run.current.number if isinstance(self.subject, WholeCore) else self.history.attempt)

    def findings(self) -> tuple[Finding, ...]:
        """Return the diagnosis of the attempt's end if it has ended, else of now."""
        return diagnose.diagnose_exit(self.history, self.ended) if self.ended is not None else self.diagnosed()

    def diagnosed(self) -> tuple[Finding, ...]:
        """Return the diagnosis of the gap, even if the attempt has ended."""
        return diagnose.diagnose(self.history, self.detector_state.judgement, self.now)

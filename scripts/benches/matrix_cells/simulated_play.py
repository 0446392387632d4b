"""Plays a cell of the simulated matrix: a run without processes through the whole core (tests/simulation).

The world knows what it does: when each silence began, what the training was in, how far it got.  That is the plan that
the oracle compares with what the core did.  It must not know what the core should do.
"""

from __future__ import annotations

import dataclasses

from msgspec.structs import replace
from tests.simulation.program import OWN, Program, Rates
from tests.simulation.simulation import Simulation

from matrix_cells.simulated_cells import ENDS, UNTRAINED, Cell
from stallguard.core.actions import Action, Collect, Launch, Signal
from stallguard.core.detection import detector
from stallguard.core.events import ClockGap, Collected, Launched, Ticked
from stallguard.core.lifecycle import ENDED
from stallguard.core.limits import DetectorLimits, Limits, PolicyLimits
from stallguard.core.readings import Device

BATCH = 0.5  # seconds
KNOWN = 60  # batches before the silence in a first attempt whose pace is known
ENOUGH = 32  # docs/configuration.md: batches that are enough to know the pace of a step
LEARNING = 8  # docs/configuration.md: detector.learning_beats
EARLY = 4  # batches before the silence in the first steps of a run
CHECKPOINT = 20  # batches between the newest checkpoint and the silence
FURTHER = 30  # batches by which each attempt gets past the place of the one before, if it does
MOST_ATTEMPTS = 13
DAY = 86400.0  # seconds
TRAINING, OTHER, LAUNCHER = 1000, 2000, 3000  # pids, and the attempt is added
# The phase of the probe's record.
RECORDED = {
    "callback": "between", "validation": "validation", "epoch-end": "epoch end", "saving": "checkpoint",
    "input": "input", "between-fits": "idle", "finishing": "finishing", "first": "step", "tracing": "tracing",
    "importing": "importing",
}  # fmt: skip
# Of each silence: cores, the frame of the training's thread, and what its threads wait for beside the runtime's own.
DOES: dict[str, tuple[float, tuple[str, int], dict[str, int]]] = {
    "deadlock": (0.0, ("library", 0), {}),
    "lock": (0.0, ("lock", 0), {}),
    "socket": (0.0, ("io", 0), {"sock": 1}),
    "sleep": (0.0, ("sleep", 0), {"sleep": 1}),
    "device": (0.0, ("library", 0), {"other": 1}),
    "held-idle": (0.0, ("", -1), {}),
    "hung-device": (0.0, ("library", 0), {}),
    "spin": (1.0, ("place", 0), {}),
    "held-busy": (1.0, ("", -1), {}),
    "compile": (1.0, ("library", 0), {}),
    "validates": (1.0, ("", -1), {}),
    "upload": (0.01, ("io", 0), {"sock": 1}),
    "saves": (0.3, ("", -1), {}),
    "pause": (0.0, ("library", 0), {"other": 1}),
    "stopped": (0.0, ("", -1), {}),
}
STACKS = {
    "deadlock": "tf_wait", "device": "tf_wait", "hung-device": "tf_wait", "pause": "tf_wait", "lock": "lock",
    "socket": "user", "sleep": "user", "spin": "user", "held-idle": "gil_native", "held-busy": "gil_native",
}  # fmt: skip
PRINTS = {"memory-line": "python_memory", "exception": "python_traceback"}  # names of lines of the output
CODES = {
    "crash": -11, "killed": -9, "memory-kill": -9, "memory-line": 1, "exception": 1, "exit-0": 0,
}  # fmt: skip


@dataclasses.dataclass
class Trouble:
    """What befell an attempt: a silence from `began` on, the last progress, or an end at that time."""

    attempt: int
    kind: str
    phase: str
    began: float
    reached: tuple[int, int]  # 0 before the first batch of a process, else 1; and the batch
    known: bool  # the pace of this phase is known
    learning: bool  # these are the first steps of a run
    factor: int
    device: str
    used_gpu: bool
    lasted: float = 0.0
    ended_by_itself: bool = False
    napped: float = -1.0  # seconds into the silence at which it was disturbed; -1: never


@dataclasses.dataclass
class Played:
    """What happened in a cell."""

    cell: Cell
    world: World
    troubles: list[Trouble]
    plan: list[tuple[float, float, str]]  # from, to, what it is


def limits(cell: Cell) -> Limits:
    policy = PolicyLimits(
        on_stall=cell.order, min_batch=int(cell.min_batch),
        max_restarts=int(cell.max_restarts),
    )  # fmt: skip
    return Limits(
        detector=DetectorLimits(patience=cell.scale), policy=policy, observe=cell.left_alone == "observed",
    )  # fmt: skip


def play(cell: Cell) -> Played:
    world = World(cell)
    while world.run.state not in ENDED and world.attempt <= MOST_ATTEMPTS:
        if world.alive:
            world.live()
        else:
            world.rest()
    return Played(cell, world, world.troubles, world.plan)


class World(Simulation):
    """A run of a cell."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.troubles: list[Trouble] = []
        self.plan: list[tuple[float, float, str]] = []
        self.used_gpu = False
        self.living = 0  # the attempt that is lived
        self.goal = 0  # batches that attempts so far have trained
        self.hints: dict[str, float] = {}  # when a process ends that was signalled, and evidence is ready
        self.launched: list[tuple[float, Launch]] = []
        self.exits: list[tuple[float, int]] = []
        self.known: set[str] = set()  # phases whose pace is known
        self.paced = 0  # batches since nothing of their pace was known
        self.read_at = self.told_at = 0.0
        super().__init__(
            limits(cell), tick=1.0, batch=BATCH, several=True, checkpoints=cell.saved == "yes",
        )  # fmt: skip

    # ---- answers

    def launch(self, action: Launch) -> None:
        """Start an attempt; `live` lives it."""
        self.alive = True
        if not self.launched and self.cell.left_alone == "muted":
            self.ask("mute", str(DAY))
        self.launched.append((self.now, action))
        if len(self.launched) > 1 and how(action) != how(self.launched[-2][1]):  # what was learned holds no more
            self.known, self.paced = set(), 0
        resumed = action.resume and self.checkpoints
        self.tell(
            Launched, attempt=action.attempt, pid=self.pid + action.attempt - 1, slices=action.slices,
            device=action.device, resumed=resumed,
        )  # fmt: skip

    def answer(self, action: Action) -> None:
        """Note what an action brings about, and when."""
        number = self.attempt
        match action:
            case Collect():
                self.hints["evidence"] = self.now + self.cell.moment(f"evidence {number}", 0.2, 2.0)
            case Signal(name="TERM"):
                self.hints["exit"] = self.now + self.cell.moment(f"end {number}", 0.1, 2.5)
            case Signal(name="KILL") if self.alive:
                self.hints["exit"] = self.now + 0.1
            case Launch():
                self.launch(action)

    def due(self) -> None:
        if self.hints.get("evidence", 1e18) <= self.now:
            del self.hints["evidence"]
            kind = self.troubles[-1].kind if self.troubles else ""
            found = STACKS.get(kind, "") if self.cell.stacks == "found" else ""
            self.tell(Collected, incident=self.run.totals.incidents, seconds=1.0, stacks=(found,) if found else ())
        if self.hints.get("exit", 1e18) <= self.now and self.alive:
            self.gone(-15 if "killed" not in self.hints else -9)

    def gone(self, code: int, memory_kill: bool | None = None) -> None:
        self.hints.clear()
        self.exits.append((self.now, code))
        self.device_is("waits")
        self.exit(code, memory_kill)

    # ---- time

    def step(self, seconds: float, done: int = 0, *, mute: bool = False, phase: str = "step") -> None:
        """Let so many seconds pass; the programs train, `done` batches of the first one, unless they are stuck.

        A silent program is read and reports in turns once its silence is long: an event costs time, and the clock of
        the detector needs one a second.
        """
        self.now += seconds
        for one in self.programs.values():
            one.use(seconds)
        turns = seconds >= 1.0 and len(self.programs) == 1 and all(one.pulses for one in self.programs.values())
        told, before = False, len(self.events)
        if (
            self.alive
            and not mute
            and not (turns and self.main is not None and self.main.stuck and self.read_at > self.told_at)
        ):
            self.read_at, told = self.now, True
            for reading in self._trees():
                self.sampled(reading if self.census_is_wanted(reading.pid) else replace(reading, census=None))
        for news in self.system.pass_time(self.now, seconds):
            self.sampled(news)
        for one in list(self.programs.values()):
            if one.pid not in self.programs:
                continue
            if not one.stuck and one.batch and self.now >= one.due:
                number = done if one.pid // 1000 == TRAINING // 1000 and done else round(seconds / one.batch)
                self.progress(one, **one.train(self.now, seconds, number, phase=phase))
                self.told_at = self.now
            elif one.pulses and not (told and turns) and self.now - one.record.at >= 1.0 - 1e-9:
                self.pulse(one)
                self.told_at = self.now
        if len(self.events) == before:
            self.tell(Ticked)
        self.due()

    def census_is_wanted(self, pid: int) -> bool:
        """Return whether the detector of the training with this tree wants a census."""
        states = [one.detector_state for one in self.run.current.trainings if pid and one.pid == pid and not one.over]
        return detector.wanted(states[-1] if states else self.detector_state, self.limits.detector).census

    def rest(self) -> None:
        began = self.now
        while not self.alive and self.run.state not in ENDED:
            # The GPU is read meanwhile if there is one; else nothing happens until the pause is over.
            seconds = 1.0 if self.system.device is not None else max(0.1, self.run.deadline - self.now)
            self.now += seconds
            for reading in self.system.pass_time(self.now, seconds):
                self.sampled(reading)
            self.tell(Ticked)
        self.plan.append((began, self.now, "backoff"))

    # ---- an attempt

    def live(self) -> None:
        cell, number, began = self.cell, self.attempt, self.now
        order = self.launched[-1][1]
        resumed = order.resume and self.checkpoints
        self.hints.clear()
        self.living = number
        struck = cell.strikes(number, order.slices, order.device)
        kind = cell.kind(number)
        phase = self.place(number)
        self.begin(order, resumed)
        start_up = cell.moment(f"start {number}", 1.0, 4.0)
        self.passes(start_up)
        if struck and phase in UNTRAINED:
            self.phase_before(phase)
            self.plan.append((began, self.main.record.progress_at if self.main else self.now, "start"))
            self.befall(kind, phase, order, known=False)
            return
        self.plan.append((began, self.now + 1.0, "start"))
        first = self.batch_now
        far = self.distance(number)
        self.trains(far - first if struck else max(KNOWN // 2, self.goal - first + 20))
        if not self.here:
            return
        if struck:
            self.befall(kind, phase, order, known=self.enters(phase))
        else:
            self.finish()

    @property
    def here(self) -> bool:
        """Whether the attempt that is lived is not over."""
        return self.alive and self.attempt == self.living

    @property
    def main(self) -> Program | None:
        """The program that the trouble befalls."""
        return next((one for one in self.programs.values() if one.pid // 1000 == TRAINING // 1000), None)

    @property
    def batch_now(self) -> int:
        """The batch that the training is at."""
        return max(0, self.main.record.batch) if self.main else 0

    def place(self, number: int) -> str:
        """Return the phase in which the trouble of an attempt comes."""
        if number == 1 or self.cell.again != "first":
            return self.cell.phase
        return self.cell.phase if self.cell.phase in UNTRAINED else "first"

    def distance(self, number: int) -> int:
        """Return the batch at which the trouble of an attempt comes."""
        first = EARLY if self.cell.phase == "early" else KNOWN
        return first + (FURTHER * (number - 1) if self.cell.again == "further" else 0)

    def begin(self, order: Launch, resumed: bool) -> None:
        """Start the programs of an attempt."""
        cell, number = self.cell, order.attempt
        census = OWN if cell.system == "linux" else None
        waits = 3.0 if cell.load == "yes" else 0.0
        rates = Rates(cores=0.9, faults=20.0, census=census, run_queue=waits)
        at = max(0, self.goal - CHECKPOINT) if resumed else 0
        tree = {"remote": cell.remote == "yes", "members": 3 if cell.workers == "yes" else 1}
        if cell.trainings == "launcher":
            self.start(LAUNCHER + number, 0, place="l", rates=Rates(cores=0.0, census=census))
        record = {"source": "callbacks", "batches": 10**6, "epochs": 10, "epoch": 0, "batch": at, "trains": False}
        one = self.start(
            TRAINING + number, BATCH, place="t", rates=rates, record=record, stuck=True,
            stuck_rates=dataclasses.replace(rates, cores=0.6, faults=900.0),
        )  # fmt: skip
        one.tree = replace(one.tree, **tree)
        if cell.trainings == "2":
            record = {"source": "callbacks", "batches": 10**6, "epochs": 10, "epoch": 0, "batch": 0}
            other = self.start(OTHER + number, BATCH, place="o", rates=rates, record=record)
            other.tree = replace(other.tree, **tree)
        for each in self.programs if cell.known_rows is not None else ():
            self.note("batch", pid=each, rows=str(cell.known_rows))

    def passes(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end - 1e-9 and self.here:
            self.step(min(0.5, end - self.now))

    def phase_before(self, phase: str) -> None:
        """Enter a phase before the first batch."""
        if self.main is not None and phase != "importing":
            self.progress(self.main, phase=RECORDED[phase], phase_at=self.now, fits=1)

    def trains(self, batches: int) -> None:
        """Train so many batches, two a step; the plan says which of them were trained before."""
        one = self.main
        if one is None or batches <= 0:
            return
        one.stuck, one.due = False, self.now
        self.device_is("works")
        left, first = batches, self.batch_now
        while left > 0 and self.here:
            done = min(2, left)
            began = self.now
            self.step(BATCH * done, done)
            left -= done
            again = first + batches - left <= self.goal
            self.plan.append((began, self.now, "again" if again else "training"))
        self.goal = max(self.goal, first + batches)
        self.paced += batches
        if self.paced > ENOUGH + 2:
            self.known |= {"step", "input", "early"}

    def enters(self, phase: str) -> bool:
        """Enter the phase of the trouble; return whether its pace is known then."""
        one = self.main
        if one is None or phase in ("step", "early", *UNTRAINED):
            return phase in self.known
        name, began = RECORDED[phase], self.now
        paced = phase in ("callback", "validation", "epoch-end", "saving")
        known = phase in self.known or (paced and self.cell.moment("known", 0.0, 1.0) < 0.7)
        if known and phase not in self.known:
            for _ in range(3):
                self.enter_main(name)
                self.step(0.5, mute=True)
                self.progress(
                    one, phase="step", longest=0.5, longest_phase=name, phase_at=self.now,
                    checks=one.record.checks + (40 if phase == "validation" else 0),
                    saves=one.record.saves + (phase == "saving"),
                )  # fmt: skip
            self.known.add(phase)
        self.enter_main(name)
        if phase == "validation":
            self.progress(one, phase=name, checks=one.record.checks + 1, longest=0.1, longest_phase=name)
        self.plan.append((began, self.now, "phase"))
        return known

    def enter_main(self, name: str) -> None:
        """Let the training enter a phase of the probe's record."""
        one = self.main
        if one is not None:
            one.stuck = True
            one.stuck_rates = one.rates
            pause = {"longest": self.now - one.record.progress_at, "longest_phase": one.record.phase}
            self.progress(one, **(pause | {"phase": name, "phase_at": self.now}))

    def finish(self) -> None:
        began = self.now
        if self.main is not None and self.here:
            self.main.stuck = True
            self.main.stuck_rates = self.main.rates
            self.progress(self.main, phase="finishing", phase_at=self.now)
            self.passes(1.0)
            self.plan.append((began, self.now, "script"))
        if self.here:
            self.gone(0)

    # ---- the trouble

    def device_is(self, what: str) -> None:
        """Set what the GPU reports: works, waits, hangs."""
        cell, hidden = self.cell, bool(self.launched) and self.launched[-1][1].device == "cpu"
        if cell.gpu == "none":
            return
        name = "Apple M2" if cell.system == "mac" else "NVIDIA"
        if cell.gpu == "others":
            self.system.device = Device(name=name, utilisation=0.4, used_by_run=False)
            return
        powered = cell.gpu == "ours"
        busy = what in ("works", "hangs") and not hidden
        power = (300.0 if what == "works" else 150.0) if busy else 40.0
        self.system.device = Device(
            name=name, utilisation=0.95 if busy else 0.0, moved=busy, power=power if powered else None,
            used_by_run=not hidden,
        )  # fmt: skip
        self.used_gpu = self.used_gpu or (busy and self.alive)

    def befall(self, kind: str, phase: str, order: Launch, *, known: bool) -> None:
        one = self.main
        if one is None:
            return
        trained = phase not in UNTRAINED
        trouble = Trouble(
            self.attempt, kind, phase, one.record.progress_at, (int(trained), self.batch_now if trained else 0),
            known, self.paced < LEARNING + 2, order.slices, order.device, self.used_gpu,
        )  # fmt: skip
        self.troubles.append(trouble)
        if kind in ENDS:
            one.stuck, one.stuck_rates = True, one.rates
            self.passes(self.cell.moment(f"last {self.attempt}", 0.1, 0.9))
            self.ends(kind, trouble)
        elif kind in ("none", "nan", "slow"):
            self.goes_on(kind)
            self.finish()
        else:
            self.is_silent(kind, trouble)

    def ends(self, kind: str, trouble: Trouble) -> None:
        if kind in PRINTS:
            self.line(PRINTS[kind])
        linux = self.cell.system == "linux"
        memory = {"memory-kill": True, "killed": False if linux else None}.get(kind)
        trouble.lasted = self.now - trouble.began
        self.plan.append((trouble.began, self.now, "crash" if CODES[kind] else "trailing"))
        self.gone(CODES[kind], memory)

    def goes_on(self, kind: str) -> None:
        """Train on: with a loss that is not finite, slowly, or as before."""
        one = self.main
        if one is None:
            return
        if kind == "nan":
            facts = {"value": "nan", "where": "epoch 1, batch 60", "fit": "1", "epoch": "0", "batch": "60"}
            self.note("nonfinite", "the loss is nan", pid=one.pid, **facts)
            one.record = replace(one.record, loss_not_finite="nan")
        began = self.now
        factor = 4.0 if kind == "slow" else 1.0
        one.stuck, one.batch = False, BATCH * factor
        for _ in range(60):
            self.step(2.0, max(1, round(2.0 / one.batch)))
        one.batch = BATCH
        self.goal = max(self.goal, self.batch_now)
        self.plan.append((began, self.now, "broken" if kind == "nan" else "training"))

    def is_silent(self, kind: str, trouble: Trouble) -> None:
        """Be silent until the attempt is over, or as long as such a silence lasts by itself."""
        one, cell = self.main, self.cell
        if one is None:
            return
        cores, frame, sites = DOES[kind]
        census = None if cell.system == "mac" else OWN | {k: OWN.get(k, 0) + v for k, v in sites.items()}
        one.stuck, one.frame = True, frame
        one.pulses = kind not in ("held-idle", "held-busy", "stopped")
        one.state = "stopped" if kind == "stopped" else "sleeping"
        one.stuck_rates = Rates(
            cores=cores if kind != "hung-device" else round(cell.moment("hung", 0.0, 1.0)), census=census,
            faults=5000.0 if kind in ("compile", "validates") else 0.0,
            io=5e6 if kind in ("upload", "saves") else 0.0,
            run_queue=3.0 if cell.load == "yes" and cores else 0.0,
        )  # fmt: skip
        self.device_is("hangs" if kind == "hung-device" else "waits")
        if cell.left_alone == "announced":  # stallguard.expect
            self.progress(one, expect_until=self.now + DAY)
            trouble.began = self.now if trouble.reached[0] else trouble.began
        if kind in ("validates", "saves"):
            self.enter_main("validation" if kind == "validates" else "checkpoint")
            trouble.began = self.now
        self.lasts(kind, trouble)
        if self.here:
            trouble.ended_by_itself = True
        trouble.lasted = self.now - trouble.began
        self.plan.append((trouble.began, self.now, "silence"))
        if self.here:
            self.recovers(kind)

    def lasts(self, kind: str, trouble: Trouble) -> None:
        cell, scale = self.cell, self.cell.scale
        longest = {
            "pause": cell.moment("long", 48.0, 75.0) * scale, "stopped": cell.moment("long", 8.0, 150.0),
            "compile": cell.moment("long", 30.0, 280.0) * scale, "upload": cell.moment("long", 30.0, 280.0) * scale,
            "validates": cell.moment("long", 30.0, 280.0) * scale, "saves": cell.moment("long", 30.0, 280.0) * scale,
        }.get(kind, 1000.0 * scale)  # fmt: skip
        if not cell.acts:
            longest = min(longest, 200.0 * scale)
        disturbed = cell.moment("disturbed", 1.0, 60.0) * min(1.0, scale) if cell.pause != "none" else 1e9
        while self.here and (self.now - trouble.began < longest or "exit" in self.hints):
            gap = self.now - trouble.began
            if gap >= disturbed and trouble.attempt == 1:
                disturbed, trouble.napped = 1e9, gap
                self.disturb()
            self.step(0.25 if gap < 8.0 else 0.5 if gap < 20.0 else 1.0)

    def disturb(self) -> None:
        """Let the machine sleep, stallguard not run, or the sensor of the process not read."""
        how = self.cell.pause
        if how == "asleep":
            self.tell(ClockGap, seconds=self.cell.moment("nap", 60.0, 7200.0))
        elif how == "starved":
            self.now += self.cell.moment("nap", 3.0, 40.0)
        else:
            for _ in range(7):
                if self.here:
                    self.step(1.0, mute=True)

    def recovers(self, kind: str) -> None:
        """Go on after a silence that ended by itself, and end well."""
        one = self.main
        if one is None:
            return
        if kind == "stopped":
            one.state, one.pulses = "sleeping", True
            self.step(0.5)
        one.frame, one.state, one.pulses, one.stuck_rates = ("", -1), "sleeping", True, None
        self.device_is("works")
        if self.cell.phase in UNTRAINED:
            self.phase_before("first")
        self.trains(20)
        if self.here:
            self.finish()


def how(order: Launch) -> tuple[int, str]:
    """Return how an attempt is run: what is learned holds for one such way."""
    return order.slices, order.device

"""A make-believe training for the detector's tests: it trains, falls silent in many ways, and goes on."""

from __future__ import annotations

from msgspec.structs import replace

from stallguard.core.detection import detector
from stallguard.core.detection.learned import Learned
from stallguard.core.events import Event, Exited, Greeted, Heard, Sampled, Slept, Ticked
from stallguard.core.limits import DetectorLimits
from stallguard.core.readings import Device, Process

OWN = {"futex": 12, "sleep": 1, "timed": 1}  # what a healthy TensorFlow step shows
LIMITS = DetectorLimits()

# way to be silent: (cores, bytes a second, minor faults a second, census)
WAYS = {
    "deadlock": (0.0, 0, 0, OWN),
    "poller": (0.01, 0, 0, OWN),
    "socket": (0.0, 0, 0, OWN | {"sock": 1}),
    "sleeper": (0.0, 0, 0, OWN | {"sleep": 2}),
    "no census": (0.0, 0, 0, None),
    "spin": (1.0, 0, 0, OWN | {"run": 1}),
    "compile": (1.0, 0, 5000, OWN | {"run": 1}),
    "upload": (0.01, 5_000_000, 0, OWN | {"sock": 1}),
}


class Scene:
    """Feeds a detector and remembers every change of its opinion as (seconds, step, evidence)."""

    def __init__(
        self, limits: DetectorLimits = LIMITS, learned: Learned | None = None, batch: float = 0.1
    ) -> None:
        self.limits, self.batch = limits, batch
        self.judge = detector.start(limits, learned)
        self.now = 100.0
        self.heard = Heard(
            at=self.now, attempt=1, phase="importing", progress_at=self.now, source="callbacks"
        )
        self.tree = Process(state="running", cpu=0.0, io=0, minor_faults=0, major_faults=0, run_queue=0.0)
        self.changes: list[tuple[float, str, str]] = []
        self.greet()

    # ---- feeding

    def feed(self, event: Event) -> None:
        before = self.judge.judgement.step
        self.judge = detector.observe(self.judge, event, self.limits)
        after = self.judge.judgement
        if after.step != before:
            self.changes.append((event.at, after.step, after.evidence))

    def greet(self) -> None:
        self.feed(Greeted(at=self.now, attempt=1, pid=1))
        self.feed(replace(self.heard, at=self.now))

    def hear(self, **changes: object) -> None:
        """Send a record that shows progress just now."""
        self.heard = replace(
            self.heard,
            at=self.now,
            sent_at=self.now,
            progress_at=self.now,
            changes=self.heard.changes + 1,
            **changes,
        )
        self.feed(self.heard)

    def pulse(self) -> None:
        self.feed(replace(self.heard, at=self.now, sent_at=self.now))

    def sample(self, **changes: object) -> None:
        self.tree = replace(self.tree, **changes)
        wanted = detector.wanted(self.judge, self.limits)
        seen = self.tree if wanted.census else replace(self.tree, census=None)
        self.feed(Sampled(at=self.now, reading=seen))

    # ---- living

    def train(self, seconds: float, *, epoch: int = 0, batch: int = 1) -> Scene:
        """Train at one batch every `self.batch` seconds; `batch`: where the epoch stands afterwards at least."""
        end = self.now + seconds
        while self.now < end and self.batch > 1.0:
            self.step(self.batch)
        while self.now < end:
            period = 1.0
            self.now += period
            done = max(1, round(period / self.batch))
            self.sample(
                cpu=self.tree.cpu + period, minor_faults=self.tree.minor_faults + int(50 * period), census=OWN
            )
            self.hear(
                phase="step", phase_at=self.now, beats=self.heard.beats + done, beat_at=self.now,
                fits=max(1, self.heard.fits), fit_beats=self.heard.fit_beats + done, epoch=epoch,
                batch=max(batch, self.heard.batch + done), longest=self.batch, longest_phase="step",
                step_s=self.heard.step_s + 0.9 * period,
            )  # fmt: skip
        return self

    def step(self, seconds: float, way: str = "spin") -> Scene:
        """Make one step of `seconds`, inside which the tree does `way`."""
        began = self.now
        self.silent(seconds, way)
        took = self.now - began
        self.hear(
            phase="step", phase_at=self.now, beats=self.heard.beats + 1, fits=1, fit_beats=self.heard.fit_beats + 1,
            epoch=0, batch=self.heard.batch + 1 if self.heard.batch > 0 else 1, longest=took, longest_phase="step",
            step_s=self.heard.step_s + took,
        )  # fmt: skip
        return self

    def enter(self, phase: str, **changes: object) -> Scene:
        self.now += 0.05
        self.hear(phase=phase, phase_at=self.now, longest=0.05, longest_phase=self.heard.phase, **changes)
        return self

    def silent(
        self, seconds: float, way: str = "deadlock", *, pulses: bool = True, state: str = "sleeping"
    ) -> Scene:
        """Make no progress for `seconds`, watched as closely as the detector wants."""
        cores, io, faults, census = WAYS[way]
        end = self.now + seconds
        while self.now < end - 1e-9:
            step = detector.wanted(self.judge, self.limits).period
            self.now += step
            self.sample(
                cpu=self.tree.cpu + cores * step, io=self.tree.io + int(io * step), state=state, census=census,
                minor_faults=self.tree.minor_faults + int(faults * step),
            )  # fmt: skip
            if pulses and self.now % 1.0 < step:
                self.pulse()
        return self

    def silent_until(
        self, step: str, way: str = "deadlock", *, within: float = 1000.0, **more: object
    ) -> float:
        """Stay silent until the opinion is `step`; return after how many seconds, infinity if it is not."""
        began = self.now
        while self.now - began < within:
            self.silent(0.25, way, **more)
            if self.judge.judgement.step == step:
                return self.now - began
        return float("inf")

    def sleep_machine(self, seconds: float) -> Scene:
        """Let the machine sleep; the supervisor's clock runs on meanwhile."""
        self.now += seconds
        self.feed(Slept(at=self.now, seconds=seconds))
        return self

    def tick(self, seconds: float) -> Scene:
        """Let time pass with nothing but ticks."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now += 1.0
            self.feed(Ticked(at=self.now))
        return self

    def exit(self, code: int = 0) -> Scene:
        self.feed(Exited(at=self.now, attempt=1, code=code))
        return self

    def device(self, **changes: object) -> None:
        self.feed(Sampled(at=self.now, reading=Device(**changes)))

    @property
    def steps(self) -> list[str]:
        """Every opinion there was, in order."""
        return [step for _, step, _ in self.changes]

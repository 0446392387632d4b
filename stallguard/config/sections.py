"""The configuration as one value: every setting with its default, in sections.

The core's own sections (detector, policy, stop) are defined beside the code that uses them.  The
meaning, unit and option of each setting are in config.table.  This module must not read anything.
"""

from __future__ import annotations

import msgspec

from stallguard.core.limits import NEVER, DetectorLimits, Limits, PolicyLimits, StopLimits


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a training is started and how long it runs."""

    python: str = ""
    observe: bool = False
    probe: bool = True
    resume: str = ""
    let_sleep: bool = False
    stop_at: str = ""
    max_time: float = NEVER
    segments: float = NEVER
    cool_down: float = 30.0


class CheckpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checkpoints that stallguard makes itself."""

    enabled: bool = True
    every: float = 300.0
    cost: float = 0.01  # share of the training's time
    inexact: str = "fallback"
    most: int = 1_000_000_000
    keep_randomness: bool = True


class TrackersSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where people look at a training: W&B, MLflow, TensorBoard."""

    resume: bool = True


class MetricsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the state of a run is written for other programs."""

    textfile: str = ""
    otlp: str = ""


class OutputSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """stallguard's messages on the terminal."""

    quiet: bool = False
    verbose: bool = False
    color: str = "auto"


class KeepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many runs are kept, and how much of each."""

    runs: int = 50
    age: float = 60 * 86400.0
    size: int = 5_000_000_000
    output: int = 64_000_000
    journal: int = 256_000_000  # a week of samples at 1 Hz takes about 100 MB


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where notifications go, and for what."""

    desktop: bool = True
    command: str = ""
    urls: tuple[str, ...] = ()
    on: tuple[str, ...] = ("stall", "restart", "give_up", "finish", "loss")
    every: float = 60.0


class EvidenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is gathered at a stall."""

    include_source: bool = False


class StoreSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The store that several machines share; it is used for a run that names a job."""

    url: str = ""
    job: str = ""
    project: str = ""
    lease: float = 120.0  # seconds; a holder renews three times in it, its machine twice
    if_away: str = "end"
    cost: float = 0.01  # share of the time, as processor time of publishing


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The job that launchd or systemd starts."""

    throttle: float = 30.0
    max_restarts: int = 5  # launchd has no limit and started one broken job 38 771 times


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings."""

    run: RunSettings = RunSettings()
    detector: DetectorLimits = DetectorLimits()
    policy: PolicyLimits = PolicyLimits()
    stop: StopLimits = StopLimits()
    checkpoint: CheckpointSettings = CheckpointSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    trackers: TrackersSettings = TrackersSettings()
    metrics: MetricsSettings = MetricsSettings()
    output: OutputSettings = OutputSettings()
    notify: NotifySettings = NotifySettings()
    keep: KeepSettings = KeepSettings()
    agent: AgentSettings = AgentSettings()
    store: StoreSettings = StoreSettings()

    def limits(self) -> Limits:
        """Return the limits for the core."""
        return Limits(
            detector=self.detector,
            policy=self.policy,
            stop=self.stop,
            observe=self.run.observe,
            saves=self.checkpoint.enabled,
            segment=self.run.segments,
            cool_down=self.run.cool_down,
        )

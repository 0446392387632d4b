"""All settings that the core needs, each with its unit and the reason for its value.

Times are seconds, of the detector on the watched clock unless a name says otherwise; shares are 0..1.  The numbers of
the row table were tuned by replaying real traces and by simulation (`scripts/bench detect` measures what they cost and
what they find).  This module must not decide anything.
"""

from __future__ import annotations

import math

import msgspec

NEVER = 1e9  # seconds; a threshold that is out of reach (JSON has no infinity)
# The least factor on all stall timeouts.  It costs 32 false alarms in 1000 h (`scripts/bench detect`); below it the
# pauses of a healthy TensorFlow, idle for 1.25 s at the end of an epoch, are called stalls.
LEAST_PATIENCE = 0.25


class PhaseLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One phase of training: how long each class of evidence must last before it is called a stall.

    The four floors hold once `enough` gaps of the row have been seen, the four priors before that.
    """

    deadlock: float
    external: float
    spin: float
    working: float
    prior_deadlock: float
    prior_external: float
    prior_spin: float
    prior_working: float
    enough: int


_Four = tuple[float, float, float, float]


def _row(floors: _Four, priors: _Four, enough: int) -> PhaseLimits:
    return PhaseLimits(*floors, *priors, enough)


class PhaseTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table of phases.  The reasons for a row are beside it."""

    # Before the first batch of a fit, while tracing and compiling: a first compile of
    # 17 minutes is normal.  Earlier first batches only shorten the limit for external waits.
    first: PhaseLimits = _row((45, 180, 300, 900), (45, 300, 900, 900), 2)
    # Inside a training step.  10 s is 8 x the longest all-idle nap ever seen in a healthy TensorFlow process.
    step: PhaseLimits = _row((10, 75, 120, 600), (60, 120, 300, 900), 32)
    # Inside the first step of an epoch: the old iterator is deleted, a shuffle buffer can fill.
    epoch_first_step: PhaseLimits = _row((20, 120, 120, 300), (45, 600, 1800, 1800), 4)
    # Between epochs, while the callbacks of the epoch's end run.
    epoch_boundary: PhaseLimits = _row((20, 120, 300, 300), (45, 600, 1800, 1800), 2)
    validation_first_step: PhaseLimits = _row((20, 120, 300, 600), (45, 300, 900, 900), 2)
    validation_step: PhaseLimits = _row((10, 75, 120, 600), (60, 120, 300, 900), 32)
    save: PhaseLimits = _row((20, 120, 300, 600), (45, 600, 900, 900), 2)
    # User callbacks after a batch.  Thousands of empty ones must not tighten what the one evaluation needs.
    batch_callbacks: PhaseLimits = _row((20, 900, 900, 900), (45, 900, 900, 900), 2)
    # A stream of beats without phases (stallguard.beat(), the poll thread).
    unclassified: PhaseLimits = _row((20, 120, 300, 600), (60, 600, 900, 900), 32)
    # Training is over and the interpreter does not end: observed with tf.data generators.
    exit: PhaseLimits = _row((60, 300, NEVER, NEVER), (60, 300, NEVER, NEVER), 1)
    # The script's own code before the first and between two trainings: it can be busy for hours.
    importing: PhaseLimits = _row((120, 1800, NEVER, NEVER), (120, 1800, NEVER, NEVER), 1)
    idle: PhaseLimits = _row((300, 1800, NEVER, NEVER), (300, 1800, NEVER, NEVER), 1)
    # The script named the phase itself.
    named: PhaseLimits = _row((120, 900, 1800, 3600), (120, 900, 1800, 3600), 1)
    # No probe, judged from outside: only an idle tree counts, and it is announced, never acted upon.
    outside: PhaseLimits = _row((1800, 1800, NEVER, NEVER), (1800, 1800, NEVER, NEVER), 1)
    # Beats go on, but the device has not answered the poll thread.
    device: PhaseLimits = _row((75, 75, 120, 120), (300, 300, 300, 300), 16)


class DetectorLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that tunes the detector, besides the row table."""

    patience: float = 1.0  # scales notice, evidence and act together
    rows: PhaseTable = PhaseTable()

    # the watched clock
    longest_tick: float = 1.0  # s that one event may add to the clock
    starved: float = 2.0  # s between two events from which on the supervisor itself did not run
    grace: float = 10.0  # s without a verdict after that

    # evidence
    window: float = 2.0  # s of readings that a class is made from
    idle_cpu: float = 0.02  # cores
    idle_share: float = 0.05  # of the run's own level inside steps
    idle_io: float = 65536.0  # bytes a second
    productive_faults: float = 200.0  # minor page faults a second: compiling or saving, not spinning
    idle_gpu: float = 0.05  # utilisation
    wedged_power: float = 0.4  # of the healthy power; a busy GPU below it does no work
    stale_census: float = 3.0  # s after which a census is too old
    stale_device: float = 5.0  # s, the same for a reading of the device, or of the tree

    # a thread that stands still in a phase with a known pace
    one_place: float = 120.0  # s in the same few lines, busy, without new memory or files
    busy_device: float = 45.0  # s in one call of the library, while its GPU is busy at an even power

    # judging
    near: float = 2.5  # s of gap below which nothing can fire
    stopped: float = 5.0  # s
    suspect_share: float = 0.5  # of a threshold
    local: float = 0.4  # x the external floor if the job has no connection to a remote host
    remote_deadlock: float = 30.0  # s, the least for a job that has one
    learning: float = 120.0  # s, the least for idleness in the first `learning_beats` steps
    learning_beats: int = 8
    habitual_idle: float = 0.25  # share of idleness from which a phase's idleness proves nothing
    no_evidence: float = 300.0  # s, floor in a step in which idleness proves nothing
    cap: float = 900.0  # s, ceiling of what statistics may add to the working floor
    burst: float = 0.5  # s of visible work in a step from which on a new shape was compiled
    burst_gaps: int = 64
    most_strikes: float = 8.0
    most_health: float = 8.0  # x, ceiling of the factor by which a busy machine raises thresholds
    crowded: float = 1.6  # x, wait for a core below which other programs do not count as the cause
    first_censuses: int = 8  # taken at every reading of a healthy step, to know the runtime's own timers
    recovered_after: int = 3  # events
    half_life: float = 2048.0  # gaps

    # acting
    act_after: float = 120.0  # s of gap in all; device waits of 48-75 s have recovered by themselves

    # slow, not stalled
    slow_window: float = 10.0  # s
    slow_steps: int = 16
    slow_history: int = 120  # windows
    slow_least: int = 12  # windows before a slow-down is announced
    slow_ratio: float = 1.5
    slow_over_p95: float = 1.2
    slow_windows: int = 6
    slow_fast_ratio: float = 2.5
    slow_fast_windows: int = 2
    slow_leave_ratio: float = 1.3
    slow_leave_windows: int = 3
    slow_clip: float = 8.0  # x the median step: one long pause is not a slow-down
    slow_normal: float = 900.0  # s after which the new level is the normal one


ON_STALL = ("auto", "restart", "halve", "cpu", "stop", "notify")
SCALINGS = ("off", "linear", "sqrt")
MEMORY_AHEAD = ("restart", "notify", "off")
ON_NONFINITE = ("notify", "stop", "rollback")


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, how soon and in which form the next attempt starts."""

    on_stall: str = "auto"  # one of ON_STALL; auto: the remedy that fits the cause
    causes: tuple[str, ...] = ()  # the same for single causes, stronger than on_stall: "device-wait=halve"
    min_batch: int = 1  # rows that a micro-batch keeps at least
    max_factor: int = 64  # micro-batches a batch at most, if the rows are not known
    max_restarts: int = 10  # within the window
    restart_window: float = 3600.0  # s
    no_progress_limit: int = 2  # restarts in a row without new progress after which it gives up
    healthy: float = 1800.0  # s of an attempt with progress, after which earlier failures do not count
    backoff: float = 2.0  # s before the second restart in a row; the first comes at once, then it doubles
    backoff_cap: float = 120.0  # s
    microbatches: int = 1  # slices that each batch is trained in from the start, at least
    batch: int = 0  # rows that the script is given at first; 0: the script decides
    batch_flag: str = ""  # the script's option for it
    batch_env: str = ""  # the variable that the script reads it from
    really_smaller_batch: bool = False  # if Keras takes the batch size: fewer rows instead of slices
    scale_lr: str = "off"  # one of SCALINGS: what the learning rate does then
    memory_ahead: str = "restart"  # one of MEMORY_AHEAD: what follows if memory is about to run out
    on_nonfinite: str = "notify"  # one of ON_NONFINITE: what follows if the loss stops being finite
    leave_machine: bool = False  # give up if the machine is at fault: another one continues the job

    @property
    def gives_size(self) -> bool:
        """Whether the script gets its batch size from stallguard, so that slicing it as well would be wrong."""
        return bool(self.batch or self.batch_flag or self.batch_env)


DEFAULTS = PolicyLimits()


class StopLimits(msgspec.Struct, frozen=True):
    """How an attempt is ended."""

    grace: float = 10.0  # seconds between SIGTERM and SIGKILL: time for a last checkpoint
    kill_wait: float = 20.0  # seconds after SIGKILL until the process is called unkillable
    # Longest wait for the end of a batch, and of the script after it, at a set time.
    batch_wait: float = 120.0
    saving_wait: float = 60.0  # longest wait for a checkpoint that is still growing


class Limits(msgspec.Struct, frozen=True):
    """What `advance` decides by."""

    detector: DetectorLimits = DetectorLimits()
    policy: PolicyLimits = PolicyLimits()
    stop: StopLimits = StopLimits()
    observe: bool = False  # announce, never act
    saves: bool = True  # checkpoints are made
    segment: float = math.inf  # seconds of an attempt after which the next one takes its place
    cool_down: float = 30.0  # seconds between the two

"""The numbers that the core decides by: the settings that it needs, and the tuning table of the detector.

Each has its unit and the reason for its value.  Times are seconds.

The rows of the tuning table are no settings: a row can change in any version.  `detector.table` names a file that
replaces some or all of them, `stallguard config init --tuning` writes one, and `patience` scales the times of stalls
together.  Times there are on the watched clock; shares are 0..1.

Sources: the times were tuned by replaying recorded traces (45 healthy ones of 28 Keras workloads, 12 stalls) and by
simulated nights: `scripts/bench detect` measures what the table costs in false alarms and how soon it finds each kind
of stall; a row without a reason of its own is from there.  What a reason calls measured was measured in those traces.
This module must not decide anything.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple, get_type_hints

import msgspec

NEVER = 1e9  # seconds; a threshold that is out of reach (JSON has no infinity)
# The least factor on all stall timeouts.  It costs 32 false alarms in 1000 h (`scripts/bench detect`); below it the
# pauses of a healthy TensorFlow, idle for 1.25 s at the end of an epoch, are called stalls.
LEAST_PATIENCE = 0.25


class Row(NamedTuple):
    """What is known of a row besides its value.  `unit`: s, x (a factor), share, cores, bytes/s, 1/s, count, number."""

    unit: str
    meaning: str
    reason: str = ""
    least: float = 0.0


class PhaseLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One phase of training: how long each class of evidence must last before it is called a stall.

    The four floors hold once `enough` gaps of the row have been seen, the four priors before that.
    """

    deadlock: Annotated[float, Row("s", "threads wait for each other")]
    external: Annotated[float, Row("s", "an idle processor waits for something outside")]
    spin: Annotated[float, Row("s", "a busy processor touches nothing new")]
    working: Annotated[float, Row("s", "the processor is busy")]
    prior_deadlock: Annotated[float, Row("s", "threads wait for each other, before enough is learned")]
    prior_external: Annotated[float, Row("s", "an idle processor waits for something outside, before that")]
    prior_spin: Annotated[float, Row("s", "a busy processor touches nothing new, before that")]
    prior_working: Annotated[float, Row("s", "the processor is busy, before that")]
    enough: Annotated[int, Row("count", "gaps that must be seen before what was learned counts")]


_Four = tuple[float, float, float, float]


def _row(floors: _Four, priors: _Four, enough: int) -> PhaseLimits:
    return PhaseLimits(*floors, *priors, enough)


def _phase(meaning: str, reason: str = "") -> Row:
    return Row("", meaning, reason)


# A table: a row stands on as few lines as it can.
# fmt: off
class PhaseTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long a gap can last in each phase: deadlock, external, spin, working; the same before enough is learned."""

    first: Annotated[PhaseLimits, _phase("the first batch, with tracing and compiling",
        "a first compile of 17 minutes is normal; earlier first batches only shorten the limit for external waits",
    )] = _row((45, 180, 300, 900), (45, 300, 900, 900), 2)
    step: Annotated[PhaseLimits, _phase("a training step",
        "10 s is 8 x the longest all-idle nap seen in a healthy TensorFlow process",
    )] = _row((10, 75, 120, 600), (60, 120, 300, 900), 32)
    epoch_first_step: Annotated[PhaseLimits, _phase("the first step of an epoch",
        "the old iterator is deleted, and a shuffle buffer can fill",
    )] = _row((20, 120, 120, 300), (45, 600, 1800, 1800), 4)
    epoch_boundary: Annotated[PhaseLimits, _phase("the time between two epochs",
        "the callbacks of the epoch's end run; a healthy one was idle for 7.75 s",
    )] = _row((20, 120, 300, 300), (45, 600, 1800, 1800), 2)
    validation_first_step: Annotated[PhaseLimits, _phase(
        "the first batch of a validation")] = _row((20, 120, 300, 600), (45, 300, 900, 900), 2)
    validation_step: Annotated[PhaseLimits, _phase("a validation step",
        "as a training step")] = _row((10, 75, 120, 600), (60, 120, 300, 900), 32)
    save: Annotated[PhaseLimits, _phase("a checkpoint",
        "a healthy save was idle for 5.75 s")] = _row((20, 120, 300, 600), (45, 600, 900, 900), 2)
    batch_callbacks: Annotated[PhaseLimits, _phase("callbacks after a batch",
        "thousands of empty ones must not tighten what the one evaluation needs",
    )] = _row((20, 900, 900, 900), (45, 900, 900, 900), 2)
    unclassified: Annotated[PhaseLimits, _phase("beats without phases",
        "stallguard.beat() and the poll thread do not say what the script does",
    )] = _row((20, 120, 300, 600), (60, 600, 900, 900), 32)
    exit: Annotated[PhaseLimits, _phase("the end of the process",
        "an interpreter that does not end was observed with tf.data generators",
    )] = _row((60, 300, NEVER, NEVER), (60, 300, NEVER, NEVER), 1)
    importing: Annotated[PhaseLimits, _phase("the code before the first training",
        "the script's own code can be busy for hours")] = _row((120, 1800, NEVER, NEVER), (120, 1800, NEVER, NEVER), 1)
    idle: Annotated[PhaseLimits, _phase("the code between two trainings",
        "the script's own code can be busy for hours")] = _row((300, 1800, NEVER, NEVER), (300, 1800, NEVER, NEVER), 1)
    named: Annotated[PhaseLimits, _phase("a phase that the script names",
        "the script can name what takes an hour")] = _row((120, 900, 1800, 3600), (120, 900, 1800, 3600), 1)
    outside: Annotated[PhaseLimits, _phase("a program without a probe",
        "only an idle tree counts, and it is announced, never acted upon",
    )] = _row((1800, 1800, NEVER, NEVER), (1800, 1800, NEVER, NEVER), 1)
    device: Annotated[PhaseLimits, _phase("a device while beats go on",
        "the device has not answered the poll thread")] = _row((75, 75, 120, 120), (300, 300, 300, 300), 16)


class DetectorLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The knob of the detector, and its tuning table."""

    patience: float = 1.0  # scales notice, evidence and act together
    table: str = ""  # the file that some of the rows below are from
    rows: PhaseTable = PhaseTable()

    # the watched clock
    longest_tick: Annotated[float, Row("s", "Time that one event may add to the watched clock.",
        "a pause of stallguard or of the machine is no time in which the training stood still")] = 1.0
    starved: Annotated[float, Row("s", "Pause between two events above which stallguard itself did not run.",
        "Cassandra's failure detector guards against a local pause of its own for the same reason")] = 2.0
    grace: Annotated[float, Row("s", "Time without a verdict after stallguard did not run, or the machine slept.",
        "as Cassandra's, which stays silent for one more pause")] = 10.0

    # evidence
    window: Annotated[float, Row("s", "Length of the readings from which the activity is classified.")] = 2.0
    idle_cpu: Annotated[float, Row("cores", "Processor use of the process tree below which it counts as idle.",
        "a deadlock with a poller of 20 Hz beside it was measured at 0.00 to 0.02 cores, with a bar of rich, drawn "
        "ten times a second, at 0.01 to 0.023")] = 0.04
    idle_share: Annotated[float, Row("share", "The same, as a share of the processor use inside steps.",
        "a run is compared with its own healthy level; idle_cpu is the floor")] = 0.05
    idle_io: Annotated[float, Row("bytes/s",
        "Bytes a second read and written below which there is no input or output.")] = 65536.0
    productive_faults: Annotated[float, Row(
        "1/s", "Page faults a second above which a busy process touches new memory.",
        "measured: XLA compiles 4,600 to 7,600, tracing 2,800 to 8,500, saving 52,600 and more, an endless loop 0",
    )] = 200.0
    idle_gpu: Annotated[float, Row("share", "GPU utilisation below which the device counts as idle.")] = 0.05
    wedged_power: Annotated[float, Row("share", "Share of its usual power below which a busy GPU counts as idle.",
        "a wedged NCCL job reports 100 % at 40 to 47 of 250 W (horovod #3611)")] = 0.4
    stale_census: Annotated[float, Row("s", "Age from which a census of the threads is not used.")] = 3.0
    stale_device: Annotated[float, Row("s", "Age from which a reading of the GPU or of the tree is not used.")] = 5.0
    one_thread: Annotated[float, Row("cores", "Processor use below which one thread alone can be busy.",
        "a thread that waits for a GPU uses one core, and the others of a runtime a little")] = 1.5
    resting_memory: Annotated[float, Row("share", "Share of the time in which a resting GPU's memory is used, at most.",
        "0 while an NVIDIA H200 ran a kernel without end")] = 0.05
    resting_power: Annotated[float, Row("share", "Share of its limit that a resting GPU draws, at most.",
        "a kernel without end draws 118 W of 700 W on an NVIDIA H200, smaller GPUs need more of their limit")] = 0.3

    # a thread that stands still in a phase with a known pace
    one_place: Annotated[float, Row("s",
        "Time that a busy thread can stay in a few lines, without new memory or files, in a phase with a known pace.",
    )] = 120.0
    busy_device: Annotated[float, Row("s",
        "Time that a thread can wait for a GPU that is busy at an even power, or does nothing, in these.")] = 45.0
    hung_device: Annotated[float, Row("s",
        "The same in other phases, for a GPU that is busy while its memory and its power rest.",
        "a kernel of 20 s can be on purpose")] = 50.0

    # judging
    near: Annotated[float, Row("s", "Time without progress below which a stall is never suspected.",
        "a healthy TensorFlow is idle for 1.25 s at the end of an epoch")] = 2.5
    stopped: Annotated[float, Row("s",
        "Time after which a stopped process (SIGSTOP, debugger) is reported as stopped.",
        "the system says so: it is no statistic")] = 5.0
    suspect_share: Annotated[float, Row("share", "Share of a stall's threshold from which a stall is suspected.")] = 0.5
    local: Annotated[float, Row("x",
        "Factor on the floor for an idle wait in a step, in a job without remote connections.",
        "30 s instead of 75 s: no other machine can answer late", 0.1)] = 0.4
    remote_deadlock: Annotated[float, Row("s",
        "Least time without progress for a deadlock in a job with remote connections.",
        "what looks like a deadlock can wait for another machine")] = 30.0
    learning: Annotated[float, Row("s",
        "Least time without progress on an idle processor for a stall in the first steps of a run.",
        "the pace is not known yet")] = 120.0
    learning_beats: Annotated[int, Row("count", "Batches that count as the first steps of a run.")] = 8
    habitual_idle: Annotated[float, Row("share",
        "Usual idleness of a phase from which idleness is no sign of a stall.")] = 0.25
    no_evidence: Annotated[float, Row("s",
        "Time without progress that is a stall in a step whose idleness is no sign of a stall.")] = 300.0
    cap: Annotated[float, Row("s",
        "Most that statistics of slow batches add to the threshold for a busy processor.")] = 900.0
    burst: Annotated[float, Row("s", "Visible work in a step above which a new shape was compiled.",
        "XLA compiles a partial last batch in 0.6 to 1.1 s, in the midst of a run")] = 0.5
    burst_gaps: Annotated[int, Row("count", "Gaps for which such a burst counts.")] = 64
    most_strikes: Annotated[float, Row("x", "Most false suspicions that are counted against the detector.",
        least=1.0)] = 8.0
    most_health: Annotated[float, Row("x", "Most by which a busy machine multiplies the thresholds.",
        "the local health of Lifeguard (arXiv 1707.00788), with a ceiling", 1.0)] = 8.0
    crowded: Annotated[float, Row("x", "Factor on the wait for a core below which other processes are not the cause.",
        "threads of a healthy TensorFlow step wait for each other's cores")] = 1.6
    first_censuses: Annotated[int, Row("count",
        "Censuses of the threads at the start, for the timers of the framework's runtime.",
        "every healthy TensorFlow step has a sleep and a timed wait of its own")] = 8
    recovered_after: Annotated[int, Row("count", "Events of progress after which a suspicion is dropped.")] = 3
    half_life: Annotated[float, Row("number", "Gaps after which an observation counts half.", least=1.0)] = 2048.0

    # acting
    act_after: Annotated[float, Row("s",
        "Time without progress before action on a stall that can still end by itself.",
        "waits for a device of 48 to 75 s have recovered by themselves; five seconds less than two minutes, so that"
        " the signal comes within these")] = 115.0

    # slow, not stalled
    slow_window: Annotated[float, Row("s", "Length of one measurement of the speed.")] = 10.0
    slow_steps: Annotated[int, Row("count", "Batches that such a measurement needs.")] = 16
    slow_history: Annotated[int, Row("count", "Measurements that are kept.")] = 120
    slow_least: Annotated[int, Row("count", "Measurements needed before a slowdown can be reported.",
        "the mean of none has no value", 1.0)] = 12
    slow_ratio: Annotated[float, Row("x", "Factor on the usual batch time from which a training is slow.")] = 1.5
    slow_over_p95: Annotated[float, Row("x", "Factor on the 95th percentile of batch times that is also needed.")] = 1.2
    slow_windows: Annotated[int, Row("count", "Slow measurements in a row that are needed.")] = 6
    slow_fast_ratio: Annotated[float, Row("x", "Factor from which a slowdown is reported sooner.")] = 2.5
    slow_fast_windows: Annotated[int, Row("count", "Slow measurements in a row for that.")] = 2
    slow_leave_ratio: Annotated[float, Row("x", "Factor below which a slowdown is over.",
        "below slow_ratio, so that it does not come and go")] = 1.3
    slow_leave_windows: Annotated[int, Row("count", "Measurements in a row below it.")] = 3
    slow_clip: Annotated[float, Row("x", "Factor on the median batch to which a single pause is limited.",
        "one long pause is no slowdown")] = 8.0
    slow_normal: Annotated[float, Row("s", "Time after which the new speed is the usual one.")] = 900.0
# fmt: on


def rows_of(table: type[msgspec.Struct]) -> dict[str, Row]:
    """Return what is known of each field of a table that is a row."""
    hints = get_type_hints(table, include_extras=True)
    noted = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    return {name: row[0] for name, row in noted.items() if row}


ON_STALL = ("auto", "restart", "halve", "cpu", "stop", "notify")
SCALINGS = ("off", "linear", "sqrt")
MEMORY_AHEAD = ("restart", "notify", "off")
ON_NONFINITE = ("notify", "stop", "rollback")


# Slices of a batch at most if its rows are not known: more slices than rows change nothing.
MOST_SLICES = 64


class PolicyLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often, how soon and in which form the next attempt starts."""

    on_stall: str = "auto"  # one of ON_STALL; auto: the remedy that fits the cause
    causes: tuple[str, ...] = ()  # the same for single causes, stronger than on_stall: "device-wait=halve"
    min_batch: int = 1  # rows that a micro-batch keeps at least
    max_restarts: int = 10  # within the window
    restart_window: float = 3600.0  # s
    no_progress_limit: int = 2  # restarts in a row without new progress after which it gives up
    healthy: float = 1800.0  # s of an attempt with progress, after which earlier failures do not count
    backoff: float = 2.0  # s before the second restart in a row; the first comes at once, then it doubles
    microbatches: int = 1  # slices that each batch is trained in from the start, at least
    batch: int = 0  # rows that the script is given at first; 0: the script decides
    batch_flag: str = ""  # the script's option for it
    batch_env: str = ""  # the variable that the script reads it from
    resume_with: str = ""  # words for the command of a later attempt, which have the script go on from its checkpoint
    really_smaller_batch: bool = False  # if Keras takes the batch size: fewer rows instead of slices
    scale_lr: str = "off"  # one of SCALINGS: what the learning rate does then
    memory_ahead: str = "restart"  # one of MEMORY_AHEAD: what follows if memory is about to run out
    empty_caches: bool = True  # if memory is short, libraries give back what they only keep for later arrays
    on_nonfinite: str = "notify"  # one of ON_NONFINITE: what follows if the loss stops being finite
    leave_machine: bool = False  # give up if the machine is at fault: another one continues the job

    @property
    def gives_size(self) -> bool:
        """Whether the script gets its batch size from stallguard, so that slicing it as well would be wrong."""
        return bool(self.batch or self.batch_flag or self.batch_env)


DEFAULTS = PolicyLimits()


# Seconds after SIGKILL until the process is called unkillable: only a wait inside the kernel lasts that long.
KILL_WAIT = 20.0


class StopLimits(msgspec.Struct, frozen=True):
    """How an attempt is ended."""

    grace: float = 10.0  # seconds between SIGTERM and SIGKILL: time for a last checkpoint
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

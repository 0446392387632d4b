"""The vocabulary of the core: everything that can happen to a run, as frozen values.

Every event carries `at`, the supervisor's monotonic clock in seconds, set by the mailbox; the core never
reads a clock.  The journal stores events as they are, so a replay sees what the run saw.  Tags and
`name=` are the words of the journal: a field names its unit there (`_seconds`, `_bytes`), a time on that clock ends in
`clock`.
This module must not import anything that acts or reads.
"""

from __future__ import annotations

import msgspec

from stallguard.core.profile import Profile
from stallguard.core.readings import AnyReading

DUMP = 0  # the incident number of evidence that the user ordered without one


class _Timed(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    at: float = msgspec.field(name="clock")


class Event(_Timed, frozen=True, kw_only=True):
    """Base of all events.  `at`: seconds on the supervisor's monotonic clock.

    `steady`: seconds before `at` that were summed up (supervisor/loop.py): stallguard ran, and all trainings
    made progress.
    """

    steady: float = msgspec.field(default=0.0, name="steady_seconds")


class Launched(Event, frozen=True, tag="attempt.started"):
    """An attempt began: the child process exists."""

    attempt: int
    pid: int
    slices: int = msgspec.field(default=1, name="factor")  # slices of each batch; 1: the whole batch at once
    device: str = "default"  # default, or cpu if the GPU is hidden
    resumed: bool = False  # there were checkpoints, and it got them
    unresumed: str = ""  # why it could not use the checkpoints that there were
    own: str = ""  # a sentence on the script's own checkpoints: with which words the attempt was started, or why not
    foreign: bool = False  # stallguard did not start it: it is watched, and never ended
    blind: bool = False  # such a process without a probe: nothing can count its batches


class Failed(Event, frozen=True, tag="attempt.start_failed"):
    """An attempt could not begin."""

    attempt: int
    why: str
    code: int = 125


class ProbeConnected(Event, frozen=True, tag="probe.connected"):
    """The probe is in a process: which hooks it has, what it found, what it cannot reach."""

    attempt: int
    pid: int
    place: str = ""  # which of the run's processes this is (probe/process_key.py); "" in journals with one process only
    command: str = ""  # what the process runs, as a user would know it
    armed: bool = False  # the stack-dump signal may be sent
    hooks: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    # The system's numbers of the probe's own threads, and of progress bars'; their sleep does not count.
    threads: tuple[int, ...] = ()
    beyond: tuple[str, ...] = ()  # sentences: what a smaller batch or a resume cannot reach here


class Heartbeat(Event, frozen=True, tag="probe.heartbeat"):
    """The newest record of a process' probe.  Times are seconds on the same clock as `at`; see wire.py."""

    attempt: int
    pid: int = 0  # 0 in journals with one process only
    trains: bool = False  # this process has trained; one that has not can be a launcher
    beats: int = 0
    beat_at: float = msgspec.field(default=0.0, name="beat_clock")
    phase: str = "importing"
    phase_at: float = msgspec.field(default=0.0, name="phase_clock")
    progress_at: float = msgspec.field(default=0.0, name="progress_clock")
    changes: int = 0
    # When a thread of the process was last able to run.
    sent_at: float = msgspec.field(default=0.0, name="sent_clock")
    longest: float = msgspec.field(default=0.0, name="longest_seconds")
    longest_phase: str = "importing"
    fits: int = 0
    fit_beats: int = 0
    epoch: int = -1
    epochs: int = -1
    batch: int = -1
    batches: int = -1
    checks: int = 0
    traces: int = 0
    iterations: int = -1
    iterations_at: float = msgspec.field(default=0.0, name="iterations_clock")
    poll_at: float = msgspec.field(default=0.0, name="poll_clock")
    source: str = "none"
    saves: int = 0
    slices: int = msgspec.field(default=1, name="factor")  # slices of each batch; 1: the whole batch at once
    # The newest; a mean over the epoch so far, if the probe reads it inside Keras' epoch.
    loss: float | None = None
    loss_of_epoch: bool = False  # it is what Keras itself reports of the epoch that ended last
    loss_not_finite: str = ""  # nan, inf or -inf if the newest loss is that; `loss` is null then
    input_s: float = msgspec.field(default=0.0, name="input_seconds")
    step_s: float = msgspec.field(default=0.0, name="step_seconds")
    expect_until: float = msgspec.field(default=0.0, name="expect_until_clock")
    skipped: int = 0
    page: bool = False  # read from the mapped page, because no datagram came
    aside: bool = False  # no hooks, or no thread receives records: constant counters prove nothing
    # What the training's thread waits for if it stands still, one of wire.WAITS; "" if that is not known.
    wait: str = ""
    wait_at: float = msgspec.field(default=0.0, name="wait_clock")  # since when
    wakers: int = -1  # other Python threads that could end that wait; -1: not known
    micro: int = 0  # micro-batches, if the library makes several of a batch
    total: int = 0  # batches of this fit in all, those of earlier attempts included; 0: not known


class ProbeNote(Event, frozen=True, tag="probe.note"):
    """A sentence from the probe: kind (resume, micro, aside, phase, save, epoch, nonfinite ...) and text.

    A name has one meaning in `facts` of every kind: `rows` is the size of a whole batch, `fit`, `epoch` and `batch` are
    a position.
    """

    attempt: int
    kind: str = msgspec.field(name="topic")
    text: str
    facts: dict[str, str] = {}
    pid: int = 0  # of the process that sends it; 0: the supervisor itself


class Profiled(Event, frozen=True, tag="probe.profile"):
    """Where the time of a training went so far, from samples of its stacks.  Absolute: each replaces the one before."""

    attempt: int
    pid: int
    profile: Profile  # since the training began


class ProcessLeft(Event, frozen=True, tag="process.left"):
    """A process of the run is over, or runs another program: ended, failed (an exception), vanished, replaced."""

    attempt: int
    pid: int
    how: str


class Sampled(Event, frozen=True, tag="sensor.sampled"):
    """A sensor's reading."""

    reading: AnyReading


class SensorBlocked(Event, frozen=True, tag="sensor.blocked"):
    """A sensor did not return within its deadline."""

    sensor: str
    seconds: float


class Matched(Event, frozen=True, tag="output.matched"):
    """A line of the script's output matched a known log signature."""

    signature: str
    family: str  # the class of the signature: GPU_FAULT, GPU_FAULT_STICKY, GPU_OOM, ...
    line: str


class ClockGap(Event, frozen=True, tag="clock.gap"):
    """The machine slept, or the supervisor itself could not run, for some time."""

    seconds: float
    why: str = "asleep"  # asleep | starved


class OutputHeld(Event, frozen=True, tag="output.held"):
    """Nothing takes the training's output (Ctrl-S, a pager), and there is no room for more: what it prints waits."""

    seconds: float  # since when, up to now


class SupervisorRestarted(Event, frozen=True, tag="supervisor.restarted"):
    """A later stallguard continues the run: the one before it was killed, or the machine was started anew."""

    seconds: float  # in which no stallguard was there
    # When the one before it last wrote, seconds on its clock; after a boot that is another clock than that of `at`.
    until: float = msgspec.field(name="until_clock")
    rebooted: bool = False  # the machine was started anew


class Ticked(Event, frozen=True, tag="clock.ticked"):
    """Time passed."""


class Exited(Event, frozen=True, tag="attempt.exited"):
    """The child has ended.  `code` as subprocess has it: negative for a signal."""

    attempt: int
    code: int
    memory_kill: bool | None = None  # the kernel killed it for memory
    known: bool = True  # False: the end was not observed, and `code` is meaningless
    signal: str = ""  # SIGUSR1, if that ended it: some numbers differ between systems; "" in old journals
    # The script's line at which a process crashed, "train.py:31 in step"; "": none did, or the line is not known.
    where: str = ""
    process: str = ""  # that crashed: "" the attempt's own or the training, worker, process 123


class Collected(Event, frozen=True, tag="evidence.ready"):
    """The evidence of an incident is on disk, or a DUMP that the user ordered."""

    incident: int
    seconds: float
    where: str = ""  # "file.py:12 in function", the script's own line that hangs
    stacks: tuple[str, ...] = ()  # classes of the innermost frames found (see collectors.stacks)
    fingerprint: str = ""  # equal for two dumps whose innermost frames are the same
    missing: tuple[str, ...] = ()


class Unkillable(Event, frozen=True, tag="attempt.kill_failed"):
    """SIGKILL was sent and the process did not end."""

    attempt: int
    state: str = ""


class UserCommand(Event, frozen=True, tag="user.command"):
    """A command of the user, the control socket or launchd: interrupt, stop, restart, mute, dump.

    Or `signal`: stallguard was sent a signal that is the training's, named by `argument`.
    """

    verb: str
    argument: str = ""
    number: int = 0  # of that signal on this system


AnyEvent = (
    Launched | Failed | ProbeConnected | Heartbeat | ProbeNote | Profiled | ProcessLeft | Sampled | SensorBlocked
    | Matched | ClockGap | OutputHeld | SupervisorRestarted | Ticked | Exited | Collected | Unkillable | UserCommand
)  # fmt: skip

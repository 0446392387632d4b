"""What each of the detector's settings means: rows of the option table.

Words only; the values and the reasons for them are core.limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, DURATION, NUMBER, SHARE, SIZE, Kind, at_least
from stallguard.core.limits import Row, Rows

PHASES = {
    "first": "the first batch",
    "step": "a training step",
    "open": "the first step of an epoch",
    "bound": "the time between two epochs",
    "vfirst": "the first batch of a validation",
    "vstep": "a validation step",
    "save": "a checkpoint",
    "after": "callbacks after a batch",
    "blind": "beats without phases",
    "exit": "the end of the process",
    "importing": "the code before the first training",
    "idle": "the code between two trainings",
    "named": "a phase of the script's own naming",
    "outside": "a program without a probe",
    "device": "a device while beats go on",
}
EVIDENCE = {
    "deadlock": "threads wait for each other",
    "external": "an idle processor waits for something outside",
    "spin": "a busy processor touches nothing new",
    "working": "the processor is busy",
}


def _row_help(phase: str, field: str) -> str:
    if field == "enough":
        return f"Gaps of {PHASES[phase]} that are seen before the learned thresholds hold."
    evidence = EVIDENCE[field.removeprefix("prior_")]
    when = ", before enough is learned" if field.startswith("prior_") else ""
    return f"Silence in {PHASES[phase]} that is a stall where {evidence}{when}."


def _rows() -> list[tuple[str, Kind, str]]:
    return [
        (f"rows.{phase}.{field}", COUNT if field == "enough" else DURATION, _row_help(phase, field))
        for phase in Rows.__struct_fields__
        for field in Row.__struct_fields__
    ]


KEYS: list[tuple[str, Kind, str]] = [
    ("longest_tick", DURATION, "Time that one event may add to the watched clock."),
    ("starved", DURATION, "Pause between two events that means: stallguard itself did not run."),
    ("grace", DURATION, "Time without judgement after stallguard itself did not run, or the machine slept."),
    ("window", DURATION, "Length of the readings that a class of evidence is made from."),
    ("idle_cpu", NUMBER, "Processor use of the process tree, in cores, below which it counts as idle."),
    ("idle_share", SHARE, "The same as a share of what the run uses inside its steps."),
    ("idle_io", SIZE, "Bytes a second read and written below which no input or output goes on."),
    ("productive_faults", NUMBER, "Page faults a second above which a busy process touches new memory."),
    ("idle_gpu", SHARE, "GPU utilisation below which the device counts as idle."),
    ("wedged_power", SHARE, "Share of its usual power below which a busy GPU does no work."),
    ("stale_census", DURATION, "Age from which a census of the threads says nothing any more."),
    ("stale_device", DURATION, "Age from which a reading of the GPU says nothing any more."),
    ("near", DURATION, "Silence below which nothing is ever suspected."),
    ("stopped", DURATION, "Time for which a process must be stopped (SIGSTOP, debugger) to be called so."),
    ("suspect_share", SHARE, "Share of a stall's threshold from which silence is suspect."),
    ("local", at_least(0.1), "Factor on the floor for an idle wait where the job talks to no remote host."),
    ("remote_deadlock", DURATION, "Least silence called a deadlock in a job that talks to a remote host."),
    ("learning", DURATION, "Least silence of an idle processor that is a stall in the first steps of a run."),
    ("learning_beats", COUNT, "Batches that count as the first steps of a run."),
    ("habitual_idle", SHARE, "Usual idleness of a phase from which its idleness says nothing."),
    ("no_evidence", DURATION, "Silence in a step that is a stall where idleness says nothing."),
    ("cap", DURATION, "Most that statistics of slow batches may add to the patience with a busy processor."),
    ("burst", DURATION, "Visible work in a step that means: a new shape was compiled."),
    ("burst_gaps", COUNT, "Gaps for which such a burst is remembered."),
    ("most_strikes", at_least(1), "Most false suspicions that are counted against the detector."),
    ("most_health", at_least(1), "Most signs of health that are counted."),
    ("crowded", NUMBER, "Factor on the wait for a core below which no other process is to blame."),
    ("first_censuses", COUNT, "Censuses of the threads that learn the runtime's own timers at the start."),
    ("recovered_after", COUNT, "Events of progress after which a suspicion is dropped."),
    ("half_life", at_least(1), "Gaps after which an observation counts half."),
    ("act_after", DURATION, "Silence in all before a stall that may still end by itself is ended."),
    ("slow_window", DURATION, "Length of one measurement of the pace."),
    ("slow_steps", COUNT, "Batches that such a measurement needs."),
    ("slow_history", COUNT, "Measurements that are remembered."),
    ("slow_least", COUNT, "Measurements needed before a slowdown can be told."),
    ("slow_ratio", NUMBER, "Factor on the usual batch time from which a training is slow."),
    ("slow_over_p95", NUMBER, "Factor on the 95th percentile of batch times that is needed too."),
    ("slow_windows", COUNT, "Slow measurements in a row that are needed."),
    ("slow_fast_ratio", NUMBER, "Factor from which a slowdown is told sooner."),
    ("slow_fast_windows", COUNT, "Measurements in a row that are needed then."),
    ("slow_leave_ratio", NUMBER, "Factor below which a slowdown is over."),
    ("slow_leave_windows", COUNT, "Measurements in a row that are needed for that."),
    ("slow_clip", NUMBER, "Factor on the median batch above which one pause counts no more."),
    ("slow_normal", DURATION, "Time after which the new pace is the usual one."),
    *_rows(),
]

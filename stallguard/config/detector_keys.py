"""The meaning of each setting of the detector: rows of the option table.

Texts only; the values and their reasons are in core.limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, DURATION, NUMBER, POSITIVE, SHARE, SIZE, Kind, at_least
from stallguard.core.limits import PhaseLimits, PhaseTable

PHASES = {
    "first": "the first batch",
    "step": "a training step",
    "epoch_first_step": "the first step of an epoch",
    "epoch_boundary": "the time between two epochs",
    "validation_first_step": "the first batch of a validation",
    "validation_step": "a validation step",
    "save": "a checkpoint",
    "batch_callbacks": "callbacks after a batch",
    "unclassified": "beats without phases",
    "exit": "the end of the process",
    "importing": "the code before the first training",
    "idle": "the code between two trainings",
    "named": "a phase that the script names",
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
        return f"Gaps of {PHASES[phase]} that must be seen before learned thresholds apply."
    evidence = EVIDENCE[field.removeprefix("prior_")]
    when = ", before enough is learned" if field.startswith("prior_") else ""
    return f"Silence in {PHASES[phase]} that is a stall if {evidence}{when}."


KEYS: list[tuple[str, Kind, str]] = [
    ("longest_tick", DURATION, "Time that one event may add to the watched clock."),
    ("starved", DURATION, "Pause between two events above which stallguard itself did not run."),
    ("grace", DURATION, "Time without a verdict after stallguard did not run, or the machine slept."),
    ("window", DURATION, "Length of the readings from which the activity is classified."),
    ("idle_cpu", NUMBER, "Processor use of the process tree, in cores, below which it counts as idle."),
    ("idle_share", SHARE, "The same, as a share of the processor use inside steps."),
    ("idle_io", SIZE, "Bytes a second read and written below which there is no input or output."),
    ("productive_faults", NUMBER, "Page faults a second above which a busy process touches new memory."),
    ("idle_gpu", SHARE, "GPU utilisation below which the device counts as idle."),
    ("wedged_power", SHARE, "Share of its usual power below which a busy GPU counts as idle."),
    ("stale_census", DURATION, "Age from which a census of the threads is not used."),
    ("stale_device", DURATION, "Age from which a reading of the GPU is not used."),
    ("near", DURATION, "Time without progress below which a stall is never suspected."),
    ("stopped", DURATION, "Time after which a stopped process (SIGSTOP, debugger) is reported as stopped."),
    ("suspect_share", SHARE, "Share of a stall's threshold from which a stall is suspected."),
    (
        "one_place",
        DURATION,
        "Time that a busy thread can stay in a few lines, without new memory or files, in a phase with a known pace.",
    ),
    (
        "busy_device",
        DURATION,
        "Time that a thread can wait in one call for a GPU that is busy at an even power, in such a phase.",
    ),
    (
        "local",
        at_least(0.1),
        "Factor on the floor for an idle wait in a step, in a job without remote connections.",
    ),
    (
        "remote_deadlock",
        DURATION,
        "Least time without progress for a deadlock in a job with remote connections.",
    ),
    (
        "learning",
        DURATION,
        "Least time without progress on an idle processor for a stall in the first steps of a run.",
    ),
    ("learning_beats", COUNT, "Batches that count as the first steps of a run."),
    ("habitual_idle", SHARE, "Usual idleness of a phase from which idleness is no sign of a stall."),
    (
        "no_evidence",
        DURATION,
        "Time without progress that is a stall in a step whose idleness is no sign of a stall.",
    ),
    ("cap", DURATION, "Most that statistics of slow batches add to the threshold for a busy processor."),
    ("burst", DURATION, "Visible work in a step above which a new shape was compiled."),
    ("burst_gaps", COUNT, "Gaps for which such a burst counts."),
    ("most_strikes", at_least(1), "Most false suspicions that are counted against the detector."),
    ("most_health", at_least(1), "Most by which a busy machine multiplies the thresholds."),
    ("crowded", NUMBER, "Factor on the wait for a core below which other processes are not the cause."),
    (
        "first_censuses",
        COUNT,
        "Censuses of the threads at the start, for the timers of the framework's runtime.",
    ),
    ("recovered_after", COUNT, "Events of progress after which a suspicion is dropped."),
    ("half_life", at_least(1), "Gaps after which an observation counts half."),
    ("act_after", DURATION, "Time without progress before action on a stall that can still end by itself."),
    ("slow_window", DURATION, "Length of one measurement of the speed."),
    ("slow_steps", COUNT, "Batches that such a measurement needs."),
    ("slow_history", COUNT, "Measurements that are kept."),
    ("slow_least", POSITIVE, "Measurements needed before a slowdown can be reported."),
    ("slow_ratio", NUMBER, "Factor on the usual batch time from which a training is slow."),
    ("slow_over_p95", NUMBER, "Factor on the 95th percentile of batch times that is also needed."),
    ("slow_windows", COUNT, "Slow measurements in a row that are needed."),
    ("slow_fast_ratio", NUMBER, "Factor from which a slowdown is reported sooner."),
    ("slow_fast_windows", COUNT, "Slow measurements in a row for that."),
    ("slow_leave_ratio", NUMBER, "Factor below which a slowdown is over."),
    ("slow_leave_windows", COUNT, "Measurements in a row below it."),
    ("slow_clip", NUMBER, "Factor on the median batch to which a single pause is limited."),
    ("slow_normal", DURATION, "Time after which the new speed is the usual one."),
    *(
        (f"rows.{phase}.{field}", COUNT if field == "enough" else DURATION, _row_help(phase, field))
        for phase in PhaseTable.__struct_fields__
        for field in PhaseLimits.__struct_fields__
    ),
]

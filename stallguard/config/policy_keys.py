"""The meaning of each setting of the restart policy: rows of the option table.

Texts only; the values and their reasons are in core.limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, DURATION, POSITIVE, SWITCH, TEXT, Kind, choice, pairs
from stallguard.core.diagnosis import causes
from stallguard.core.limits import MEMORY_AHEAD, ON_NONFINITE, ON_STALL, SCALINGS

CAUSES = pairs("cause", causes.CAUSES, "order", ON_STALL)
# Name, kind, meaning, option of `run`.
KEYS: list[tuple[str, Kind, str, str]] = [
    ("on_stall", choice(*ON_STALL), "What to do about a stall; auto: the remedy for its cause.", "--on-stall"),
    ("causes", CAUSES, 'The same for single causes: ["device-wait=halve"]; overrides on_stall.', ""),
    ("min_batch", POSITIVE, "Rows of a batch below which it is not made smaller.", "--min-batch"),
    ("max_factor", POSITIVE, "Most slices of a batch whose number of rows is not known.", ""),
    ("max_restarts", COUNT, "Restarts within the window before giving up.", "--max-restarts"),
    ("restart_window", DURATION, "Time after which a restart no longer counts.", "--restart-window"),
    ("no_progress_limit", POSITIVE, "Restarts in a row without new progress before giving up.", ""),
    ("healthy", DURATION, "Time of progress after which an attempt counts as healthy.", ""),
    ("backoff", DURATION, "Pause before the second restart in a row; it doubles from there.", ""),
    ("backoff_cap", DURATION, "Longest pause before a restart.", ""),
    (
        "microbatches", POSITIVE, "Slices that each batch is trained in from the start, with one update; never fewer.",
        "--microbatches",
    ),
    ("batch", COUNT, "Rows of the script's first batch, for {batch} and the two below.", "--batch"),
    ("batch_flag", TEXT, "The option of the script that takes its batch size, such as --batch-size.", "--batch-flag"),
    ("batch_env", TEXT, "The environment variable that the script reads its batch size from.", "--batch-env"),
    (
        "really_smaller_batch", SWITCH,
        "Make Model.fit train on fewer rows instead of in slices, if it takes a batch size.",
        "--really-smaller-batch",
    ),
    ("scale_lr", choice(*SCALINGS), "How the learning rate changes if fit trains on fewer rows.", "--scale-lr"),
    (
        "memory_ahead", choice(*MEMORY_AHEAD),
        "What to do before memory runs out: restart from a checkpoint, only notify, or off.", "--memory-ahead",
    ),
    (
        "on_nonfinite", choice(*ON_NONFINITE),
        "If the loss stops being finite: notify, stop, or roll back to the last finite checkpoint and stop.",
        "--on-nonfinite",
    ),
    (
        "leave_machine", SWITCH,
        "Give up if the machine is at fault, so that another one continues the job; `fleet worker` sets it.", "",
    ),
]  # fmt: skip

"""What each setting of the restart policy means: rows of the option table.

Words only; the values and the reasons for them are core.limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, DURATION, POSITIVE, SWITCH, TEXT, Kind, choice, pairs
from stallguard.core.diagnosis import causes
from stallguard.core.limits import ON_STALL, SCALINGS

CAUSES = pairs("cause", causes.CAUSES, "order", ON_STALL)
# Name, kind, meaning, option of `run`.
KEYS: list[tuple[str, Kind, str, str]] = [
    ("on_stall", choice(*ON_STALL), "What to do about a stall; auto: what fits its cause.", "--on-stall"),
    ("causes", CAUSES, 'The same for single causes: ["device-wait=halve"]; stronger than on_stall.', ""),
    ("min_batch", POSITIVE, "Rows of a batch below which it is not made smaller.", "--min-batch"),
    ("max_factor", POSITIVE, "Slices a batch is cut into at most, where its rows are not known.", ""),
    ("max_restarts", COUNT, "Restarts within the window before giving up.", "--max-restarts"),
    ("restart_window", DURATION, "Time after which a restart is forgotten.", "--restart-window"),
    ("fruitless", POSITIVE, "Restarts in a row without new progress before giving up.", ""),
    ("healthy", DURATION, "Time of good progress after which an attempt's troubles are no habit.", ""),
    ("backoff", DURATION, "Pause before the second restart in a row; it doubles from there.", ""),
    ("backoff_cap", DURATION, "Longest pause before a restart.", ""),
    (
        "microbatches", POSITIVE, "Slices that each batch is trained in from the start, with one update; never fewer.",
        "--microbatches",
    ),
    ("batch", COUNT, "Rows of the script's first batch, for {batch} and the two below.", "--batch"),
    ("batch_flag", TEXT, "The script's own option that takes its batch size, such as --batch-size.", "--batch-flag"),
    ("batch_env", TEXT, "The environment variable that the script reads its batch size from.", "--batch-env"),
    (
        "really_smaller_batch", SWITCH,
        "Make Model.fit train on fewer rows, where it takes a batch size, instead of in slices.",
        "--really-smaller-batch",
    ),
    ("scale_lr", choice(*SCALINGS), "What the learning rate does where fit trains on fewer rows.", "--scale-lr"),
    ("regrow", SWITCH, "Try the larger batch again after a stable time, at the end of an epoch.", "--regrow"),
    ("regrow_after", DURATION, "Time of good progress at one size before a larger one is tried.", ""),
]  # fmt: skip

"""What each setting of the restart policy means: rows of the option table.

Words only; the values and the reasons for them are core.policy_limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, DURATION, POSITIVE, TEXTS, Kind, choice
from stallguard.core.policy_limits import ON_STALL

# Name, kind, meaning, option of `run`.
KEYS: list[tuple[str, Kind, str, str]] = [
    ("on_stall", choice(*ON_STALL), "What to do about a stall; auto: what fits its cause.", "--on-stall"),
    ("causes", TEXTS, 'The same for single causes: ["device-wait=halve"]; stronger than on_stall.', ""),
    ("min_batch", POSITIVE, "Rows of a batch below which it is not made smaller.", "--min-batch"),
    ("max_factor", POSITIVE, "Slices a batch is cut into at most, where its rows are not known.", ""),
    ("max_restarts", COUNT, "Restarts within the window before giving up.", "--max-restarts"),
    ("restart_window", DURATION, "Time after which a restart is forgotten.", "--restart-window"),
    ("fruitless", POSITIVE, "Restarts in a row without new progress before giving up.", ""),
    ("healthy", DURATION, "Time of good progress after which an attempt's troubles are no habit.", ""),
    ("backoff", DURATION, "Pause before the second restart in a row; it doubles from there.", ""),
    ("backoff_cap", DURATION, "Longest pause before a restart.", ""),
]

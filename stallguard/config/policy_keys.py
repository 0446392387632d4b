"""What each setting of the restart policy means: rows of the option table.

Words only; the values and the reasons for them are core.policy_limits.
"""

from __future__ import annotations

from typing import Any

from stallguard.config.kinds import COUNT, DURATION, POSITIVE, TEXTS, Kind, choice
from stallguard.core.policy_limits import ON_STALL
from stallguard.core.remedies import ORDERS, REMEDIES


def _orders(raw: Any) -> tuple[str, ...]:
    pairs = TEXTS.read(raw)
    for pair in pairs:
        cause, _, order = pair.partition("=")
        if cause not in REMEDIES or order not in ORDERS:
            raise ValueError(raw)
    return tuple(pairs)


CAUSES = Kind(
    "CAUSE=ORDER",
    f"cause=order pairs, an order being one of {', '.join(ORDERS)}: device-wait=halve",
    _orders,
    TEXTS.show,
    {"type": "array", "items": {"type": "string", "pattern": f"^[a-z-]+=({'|'.join(ORDERS)})$"}},
)

KEYS: list[tuple[str, Kind, str, str]] = [
    ("on_stall", choice(*ON_STALL), "What to do about a stall; auto: what fits its cause.", "--on-stall"),
    ("causes", CAUSES, "The same for single causes, stronger than on_stall.", ""),
    ("min_batch", POSITIVE, "Rows that a smaller batch keeps at least.", "--min-batch"),
    ("max_factor", POSITIVE, "Parts that a batch is cut into at most.", ""),
    ("max_restarts", COUNT, "Restarts within the restart window after which to give up.", "--max-restarts"),
    ("restart_window", DURATION, "Time after which a restart counts no more.", "--restart-window"),
    ("fruitless", POSITIVE, "Restarts in a row without new progress after which to give up.", ""),
    ("healthy", DURATION, "Time of progress after which the next trouble counts as the first.", ""),
    ("backoff", DURATION, "Pause before the second restart in a row; it doubles with each further one.", ""),
    ("backoff_cap", DURATION, "Longest pause between two attempts.", ""),
]

"""What each setting of the restart policy means: rows of the option table.

Words only; the values and the reasons for them are core.policy_limits.
"""

from __future__ import annotations

from stallguard.config.kinds import COUNT, Kind, choice

ON_STALL = choice("auto", "restart", "halve", "cpu", "stop", "notify")

KEYS: list[tuple[str, Kind, str, str]] = [
    ("on_stall", ON_STALL, "What to do about a stall; auto: what fits its cause.", "--on-stall"),
    ("max_restarts", COUNT, "Restarts before giving up.", "--max-restarts"),
]

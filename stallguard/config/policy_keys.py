"""What each setting of the restart policy means: rows of the option table.

Words only; the values and the reasons for them are core.policy_limits.
"""

from __future__ import annotations

from stallguard.config.kinds import Kind

KEYS: list[tuple[str, Kind, str, str]] = []

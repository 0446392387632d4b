"""What was said already of a training that goes on, so that it is said once.

This module may not decide anything.
"""

from __future__ import annotations

import msgspec


class Review(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of the present attempt.  `at`: monotonic seconds of the last look."""

    at: float = 0.0
    slow: bool = False
    told: tuple[str, ...] = ()  # causes

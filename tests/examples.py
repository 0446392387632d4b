"""How many examples a test with random or exhaustive input takes: `scripts/test --fast` takes a part of them."""

from __future__ import annotations

import os

FAST = "STALLGUARD_TEST_FAST"  # set by `scripts/test --fast`


def of(whole: int, *, fast: int) -> int:
    """Return the number of examples: `fast` in `scripts/test --fast`, else `whole`."""
    return fast if FAST in os.environ else whole

"""What the machine holds, and what it can hold: swap counts only if its size is known."""

from __future__ import annotations

import pytest

from stallguard.core.readings import Memory


@pytest.mark.parametrize(
    ("reading", "held", "most"),
    [
        (Memory(total=100, available=30), 70, 100),
        (Memory(total=100, available=30, paged=20, paged_limit=50), 90, 150),
        (Memory(total=100, available=30, paged=20), 70, 100),
        (Memory(total=100), None, 100),
        (Memory(available=30), None, None),
    ],
)
def test_memory_in_use_and_at_most(reading: Memory, held: int | None, most: int | None) -> None:
    assert (reading.held, reading.most) == (held, most)

"""A reader that takes nothing is said to the core, now and then."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stallguard.core.events import OutputHeld
from stallguard.supervisor.output.held import HeldOutput


def test_output_that_is_held_is_posted_every_two_seconds_and_output_that_is_read_is_not():
    clock, held, posted = [100.0], [0.0], []
    watch = HeldOutput(SimpleNamespace(blocked=lambda now: held[0]), posted.append, lambda: clock[0])

    for _ in range(50):  # 5 s of a reader that is slow, but reads
        clock[0], held[0] = clock[0] + 0.1, 0.5
        watch.look(None)
    assert posted == []

    held[0] = 0.0
    for _ in range(100):  # 10 s of one that takes nothing
        clock[0], held[0] = clock[0] + 0.1, held[0] + 0.1
        watch.look(None)
    assert 4 <= len(posted) <= 5
    assert all(isinstance(one, OutputHeld) for one in posted)
    assert posted[0].seconds == pytest.approx(1.0, abs=0.15)

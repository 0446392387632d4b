"""The deciding thread: when it counts as hanging."""

from __future__ import annotations

import threading

from stallguard.supervisor import loop
from stallguard.supervisor.loop import LOOK, OWN_HANG, OwnHang
from stallguard.supervisor.mailbox import LONGEST_NAP


def test_a_loop_that_waits_for_an_event_does_not_count_as_hanging():
    assert LONGEST_NAP + 10.0 < OWN_HANG, "a wait can end a little late"


def test_each_hang_of_the_loop_is_written_once(tmp_path):
    time, path = [100.0], tmp_path / "stacks"
    with path.open("w") as file:
        hang = OwnHang(file, lambda: time[0])

        def after(seconds: float) -> int:
            """Return how many dumps there are after the next look."""
            time[0] += seconds
            hang.look()
            return path.read_text().count("Current thread")

        assert [after(OWN_HANG - 1.0), after(2.0), after(LOOK), after(10 * OWN_HANG)] == [0, 1, 1, 1]
        assert "in look" in path.read_text()
        hang.turn()
        assert [after(LOOK), after(OWN_HANG)] == [1, 2]


def test_the_thread_that_looks_ends_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOOK", 0.01)
    before, time = set(threading.enumerate()), [0.0]
    with (tmp_path / "stacks").open("w") as file:
        hang = OwnHang(file, lambda: time[0])
        hang.start()
        time[0] = OWN_HANG + 1.0
        while not (tmp_path / "stacks").read_text():
            assert len(threading.enumerate()) == len(before) + 1
        hang.end()
    assert set(threading.enumerate()) == before

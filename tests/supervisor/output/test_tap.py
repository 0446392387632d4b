"""Who reads the output beside the user gets all of it, or knows how much it did not get, and holds nothing up."""

from __future__ import annotations

import contextlib
import os
import threading
import time

from stallguard.supervisor.output.carrier import TAP_CHUNKS, TapThread
from tests.supervisor.stage import LONG, Side, python


def test_a_tap_sees_the_output_and_a_stuck_one_stops_nothing(stage, finished):
    seen, stuck = [], threading.Event()

    def tap(data, _skipped):
        seen.append(data)
        stuck.wait(LONG)

    show = stage(Side("pipe"), tap=tap)
    assert show.run(python("import sys; sys.stdout.buffer.write(b't' * 20_000_000)")) == 0
    assert len(finished(show)) == 20_000_000
    assert seen
    assert set(b"".join(seen)) == {ord("t")}
    stuck.set()


def test_a_tap_that_fails_is_reported_and_harms_nothing(stage, finished):
    def tap(data, _skipped):
        raise ValueError(data)

    show = stage(Side("pipe"), tap=tap)
    show.run(["echo", "x"])
    assert finished(show) == b"x\n"
    assert "ValueError" in show.troubles[0]


def test_a_flood_is_shown_in_samples_with_its_end_and_the_rest_is_counted(stage, finished):
    shown, over = [], threading.Event()

    def slow(data, skipped):
        shown.append((skipped, data))
        over.wait(LONG)

    size, side = 30_000_000, Side("pipe", read=False)
    threading.Thread(target=drain, args=(side.ours,), daemon=True).start()
    show = stage(side, tap=slow)
    assert show.run(python(f"import os; os.write(1, b'a' * {size}); os.write(1, b'the end')")) == 0
    over.set()
    assert show.output.settle(LONG)

    assert b"".join(data for _, data in shown).endswith(b"the end")
    assert sum(skipped + len(data) for skipped, data in shown) == size + len(b"the end")
    assert sum(skipped for skipped, _ in shown) > 0


def test_the_tap_rests_so_that_those_that_carry_the_output_get_the_interpreter():
    used, enough = [], threading.Event()

    def busy(_data, _skipped):
        began = time.thread_time()
        while time.thread_time() - began < 0.002:
            pass
        used.append(1)
        if len(used) == 20:
            enough.set()

    tap, began = TapThread(busy, print), time.monotonic()
    for _ in range(TAP_CHUNKS):
        tap.show(b"x")
    assert enough.wait(LONG)
    assert time.monotonic() - began > 0.4  # ten times what the tap used
    assert tap.settle(LONG)
    tap.close()
    assert len(used) == TAP_CHUNKS


def drain(descriptor):
    with contextlib.suppress(OSError):
        while os.read(descriptor, 1 << 16):
            pass

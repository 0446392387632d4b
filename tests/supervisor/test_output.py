"""The script's output reaches the user as it would without us, output.log, and the search, whole or counted."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import subprocess
import sys
import termios
import textwrap
import threading
import time
from pathlib import Path

import pytest

from stallguard.core.events import Event, Matched, ProbeNote
from stallguard.sensors.log_matcher import Matcher
from stallguard.supervisor.output import FIRST, LAST, TAP_CHUNKS, Matching, OutputCarrier, TapThread
from stallguard.supervisor.output_log import OutputLog
from stallguard.supervisor.terminal_lines import choose, look
from tests.supervisor.stage import LONG, ROOT, Side, python

# ---- what the child gets ---------------------------------------------------------------------------------------

ERROR = b'Traceback (most recent call last):\n  File "t.py", line 1\n'


# ---- pipes ---------------------------------------------------------------------------------------------------------


def test_bytes_pass_unchanged_and_apart_and_both_are_kept(stage, finished):
    show = stage(Side("pipe"), Side("pipe"))
    every = "bytes(range(256)) * 5000"
    assert (
        show.run(python(f"import os; os.write(2, b'\\xff\\x00e'); import sys; sys.stdout.buffer.write({every})")) == 0
    )
    assert finished(show) == bytes(range(256)) * 5000
    assert show.err.data == b"\xff\x00e"
    kept = show.path.read_bytes()
    assert sorted(kept) == sorted(show.out.data + show.err.data)


def test_output_and_error_in_one_pipe_keep_their_order(stage, finished):
    show = stage(Side("pipe"))
    show.run(["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done"])
    assert finished(show) == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 10))
    assert show.path.read_bytes() == show.out.data


def test_a_line_arrives_while_the_child_goes_on(stage):
    show = stage(Side("pipe"))
    show.start(python("import time; print('batch 1', flush=True); time.sleep(60)"))
    show.out.until(b"batch 1\n")


def test_two_attempts_share_one_output(stage, finished):
    show = stage(Side("pipe"))
    show.run(["echo", "one"])
    show.run(["echo", "two"])
    assert finished(show) == b"one\ntwo\n"


@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_what_was_written_before_the_end_is_passed_on_before_it_is_reported(stage, kind):
    show = stage(Side(kind))
    show.run(python("print('x' * 20000); print('end')"))
    assert show.output.settle(LONG)
    assert show.path.read_bytes().endswith(b"end\n")


def test_a_reader_that_has_enough_reaches_the_child(stage):
    side = Side("pipe", read=False)
    show = stage(side, Side("pipe"))
    child = show.start(["yes"])
    assert os.read(side.ours, 2) == b"y\n"
    os.close(side.ours)
    assert child.wait(LONG) == -13  # SIGPIPE, as `yes | head -1`


def test_a_child_that_is_silent_while_its_reader_leaves_fails_at_its_next_word(stage):
    side = Side("pipe", read=False)
    show = stage(side, Side("pipe"))
    child = show.start(["/bin/sh", "-c", "read go; echo late; echo later; exit 9"], stdin=subprocess.PIPE)
    os.close(side.ours)
    line = select.poll()
    line.register(show.output.stdout, 0)
    # poll reports an error: the reader has left, so the child's line has no reader.
    assert line.poll(LONG * 1000)
    child.stdin.write(b"go\n")
    child.stdin.close()
    assert child.wait(LONG) == -13


def test_a_slow_reader_slows_the_child_and_nothing_is_lost(stage, finished):
    side = Side("pipe", read=False)
    show = stage(side, Side("pipe"))
    child = show.start(python("import sys; sys.stdout.write('z' * 1_000_000)"))
    show.until_blocked()
    assert child.poll() is None  # as it would be without us
    assert show.output.settle(0.05) is False
    side._thread.start()
    assert child.wait(LONG) == 0
    assert finished(show) == b"z" * 1_000_000
    assert show.output.blocked(time.monotonic()) == 0


def test_a_descriptor_that_another_process_made_nonblocking_loses_nothing(stage, finished):
    side = Side("pipe", read=False)
    os.set_blocking(side.given, False)
    show = stage(side)
    child = show.start(python("import sys; sys.stdout.write('n' * 1_000_000)"))
    show.until_blocked()
    side._thread.start()
    assert child.wait(LONG) == 0
    assert finished(show) == b"n" * 1_000_000


def test_a_terminal_is_closed_when_nothing_is_unread(stage, finished, monkeypatch):
    """macOS drops what is unread when the last of a slave's descriptors is closed."""
    scene = stage(Side("terminal", read=False))
    scene.start(python("print('x' * 200_000)"))
    scene.until_blocked()
    [pump] = scene.output._pumps
    plain, unread = os.close, []

    def close(descriptor):
        if descriptor == pump.line.theirs:
            ready = select.select([pump.line.ours], [], [], 0)[0] if pump._thread.is_alive() else []
            unread.append(bool(ready))
        plain(descriptor)

    for child in scene.children:
        os.killpg(child.pid, 9)
        child.wait()
    monkeypatch.setattr("stallguard.supervisor.output.os.close", close)
    scene.out._thread.start()
    finished(scene)
    assert unread == [False]


def test_an_orphan_that_chatters_cannot_hold_the_end(stage, finished):
    show = stage(Side("pipe"))
    show.run(["/bin/sh", "-c", "echo done; yes & exit 0"])
    began = time.monotonic()
    data = finished(show)
    assert data.startswith(b"done\n")
    assert len(data) < 40 * LAST
    assert time.monotonic() - began < LONG / 2
    os.killpg(show.children[0].pid, 9)


def test_a_silent_orphan_cannot_hold_the_end_either(stage, finished):
    show = stage(Side("pipe"))
    show.run(["/bin/sh", "-c", "echo done; sleep 60 & exit 0"])
    assert finished(show) == b"done\n"
    os.killpg(show.children[0].pid, 9)


def test_the_end_can_be_bounded_when_nothing_reads(stage):
    side = Side("pipe", read=False)
    show = stage(side)
    show.start(python("print('w' * 1_000_000)"))
    show.until_blocked()
    assert show.output.finish(0.1) is False
    side._thread.start()
    assert show.output._out.join(LONG)
    show.output._log.close()
    show.children[0].wait(LONG)
    side.close()
    show.close = lambda: None


def test_a_full_disk_behind_the_redirect_does_not_end_the_training(tmp_path):
    troubles = []
    with Path("/dev/full").open("wb") as full:
        log = OutputLog(tmp_path / "output.log", troubles.append)
        output = OutputCarrier(choose(look(full.fileno()), look(full.fileno())), log, troubles.append,
                        targets=(full.fileno(), full.fileno()))  # fmt: skip
        assert subprocess.call(["/bin/sh", "-c", "echo a; sleep 0.1; echo b"], stdout=output.stdout) == 0
        assert output.finish(LONG)
    assert (tmp_path / "output.log").read_bytes() == b"a\nb\n"
    assert len(troubles) == 1
    assert "No space left" in troubles[0]


# ---- terminals -----------------------------------------------------------------------------------------------------


def test_a_terminal_that_goes_away_is_an_error_for_the_child(stage):
    side = Side("terminal", read=False)
    show = stage(side)
    child = show.start(
        python("""
        import os, time
        try:
            while True:
                os.write(1, b"x" * 1000)
                time.sleep(0.01)
        except OSError as error:
            raise SystemExit(error.errno)
    """)
    )
    time.sleep(0.2)
    os.close(side.ours)
    assert child.wait(LONG) == errno.EIO


# A supervisor in the foreground of a terminal, and a child in a session of its own that reads from it.
IN_FRONT = """
    import fcntl, os, sys, termios
    sys.path.insert(0, {root!r})
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    from stallguard.supervisor import child, output, output_log, terminal_lines
    log = output_log.OutputLog(__import__("pathlib").Path({log!r}), print)
    out = output.OutputCarrier(terminal_lines.choose(terminal_lines.look(1), terminal_lines.look(2)), log, print)
    import threading
    ended = threading.Event()
    kid = child.Child.start([sys.executable, "-c", {code!r}], env=dict(os.environ), stdout=out.stdout,
                            stderr=out.stderr, post=lambda *_: ended.set())
    ended.wait(20)
    kid.reap()
    out.finish(20)
"""
ASKS = """
import getpass, os
name = input("name? ")
word = getpass.getpass("word? ")
print("got", name, word, os.isatty(0))
"""


def test_a_child_can_still_ask_its_user(tmp_path):
    side = Side("terminal")
    code = textwrap.dedent(IN_FRONT).format(root=str(ROOT), log=str(tmp_path / "output.log"), code=ASKS)
    front = subprocess.Popen(
        [sys.executable, "-c", code], stdin=side.given, stdout=side.given, stderr=side.given, start_new_session=True,
    )  # fmt: skip
    try:
        side.until(b"name? ")
        os.write(side.ours, b"ada\n")
        side.until(b"word? ")
        until = time.monotonic() + LONG
        while termios.tcgetattr(side.given)[3] & termios.ECHO and time.monotonic() < until:
            time.sleep(0.01)
        os.write(side.ours, b"secret\n")
        side.until(b"got ada secret True\r\n")
        assert front.wait(LONG) == 0
        assert side.data.count(b"secret") == 1  # getpass kept it off the screen
    finally:
        front.kill()
        front.wait()
        side.close()


def test_no_terminal_of_ours_is_left_open(stage, finished):
    before = len(list(Path("/dev/fd").iterdir()))
    show = stage(Side("terminal"), Side("pipe"))
    show.run(["echo", "x"])
    finished(show)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_output_that_still_has_room_is_not_held(stage, finished):
    """A training that prints a line each epoch is not held up by a pager, so its stalls are stalls."""
    side = Side("pipe", read=False)
    show = stage(side)
    child = show.start(python("print('m' * 100_000)"))
    [pump] = show.output._pumps
    until = time.monotonic() + LONG
    while (pump.blocked_since is None or time.monotonic() < pump.blocked_since + 0.05) and (time.monotonic() < until):
        time.sleep(0.005)
    assert pump.blocked_since is not None
    assert show.output.blocked(time.monotonic()) == 0
    side._thread.start()
    assert child.wait(LONG) == 0
    assert finished(show) == b"m" * 100_000 + b"\n"


def matching() -> tuple[Matching, list[Event]]:
    posted: list[Event] = []
    return Matching(posted.append, lambda: 1.0, lambda: 3), posted


def test_what_came_before_the_matcher_is_read_first() -> None:
    reader, posted = matching()
    reader.feed(ERROR)
    reader.begin(Matcher())
    reader.feed(b"ValueError: x\n")

    assert [event.line for event in posted if isinstance(event, Matched)] == ["ValueError: x"]


def test_what_was_skipped_is_said_at_once_and_in_sum_at_the_end_of_each_attempt() -> None:
    reader, posted = matching()
    reader.begin(Matcher())
    for _ in range(3):
        reader.feed(b"x\n", 400_000)
    reader.finish()
    reader.finish()

    notes = [(event.attempt, event.text) for event in posted if isinstance(event, ProbeNote)]
    assert [attempt for attempt, _ in notes] == [3, 3]
    assert "faster than" in notes[0][1]
    assert notes[1][1].startswith("1.2 MB of the output")


def test_a_traceback_is_not_continued_behind_a_gap() -> None:
    reader, posted = matching()
    reader.begin(Matcher())
    reader.feed(ERROR)
    reader.feed(b"12/80 loss: 0.5\n", 5_000_000)

    assert [event for event in posted if isinstance(event, Matched)] == []


def test_what_has_no_room_before_the_matcher_is_there_counts_as_skipped() -> None:
    reader, posted = matching()
    reader.feed(b"x" * FIRST)
    reader.feed(ERROR)
    reader.begin(Matcher())
    reader.feed(b"ValueError: x\n")
    reader.finish()

    assert not any(isinstance(event, Matched) for event in posted)
    assert [event.text for event in posted if isinstance(event, ProbeNote)][-1].startswith("0.0 MB")


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

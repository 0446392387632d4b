"""The child gets a terminal for a terminal, with its size and settings, and a pipe for all else."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from stallguard.supervisor.terminal_lines import End, choose
from tests.supervisor.stage import LONG, Side, python

TTY, FILE, CLOSED = End("terminal", (1, 2)), End("other", (3, 4)), End("closed")


@pytest.mark.parametrize(
    ("out", "err", "seen"),
    [
        (TTY, TTY, ("terminal", "terminal", True)),
        (TTY, End("terminal", (1, 3)), ("terminal", "terminal", False)),
        (FILE, TTY, ("pipe", "terminal", False)),
        (FILE, FILE, ("pipe", "pipe", True)),
        (FILE, End("other", (3, 5)), ("pipe", "pipe", False)),
        (CLOSED, CLOSED, ("none", "none", False)),
        (CLOSED, FILE, ("none", "pipe", False)),
    ],
)
def test_each_stream_is_what_it_would_be_without_us(out, err, seen):
    assert choose(out, err) == seen


def set_size(descriptor, rows, columns):
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def test_a_terminal_stays_a_terminal_and_newlines_are_translated_once(stage, finished):
    side = Side("terminal")
    set_size(side.given, 40, 132)
    show = stage(side)
    show.run(
        python(r"""
        import os, sys
        print(os.isatty(1), os.isatty(2), tuple(os.get_terminal_size()))
        sys.stderr.write("\r\x1b[32m10/40\x1b[0m\b\b")
    """)
    )
    assert show.output.settle(LONG)
    side.until(b"\b\b")
    assert side.data == b"True True (132, 40)\r\n\r\x1b[32m10/40\x1b[0m\b\b"
    assert show.path.read_bytes() == side.data.replace(b"\r\n", b"\n")
    assert show.output.fresh() is False
    finished(show)


def test_only_what_was_a_terminal_is_one(stage, finished):
    show = stage(Side("pipe"), Side("terminal"))
    show.run(python("import os; print(os.isatty(1), os.isatty(2))"))
    assert finished(show) == b"False True\n"
    assert show.output.fresh()


def test_a_new_width_is_seen_by_the_child(stage, finished):
    side = Side("terminal")
    set_size(side.given, 24, 80)
    show = stage(side)
    child = show.start(
        python("""
        import os, signal
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
        print("ready", flush=True)
        signal.sigwait({signal.SIGWINCH})
        print(os.get_terminal_size().columns)
    """)
    )
    side.until(b"ready")
    set_size(side.given, 24, 211)
    show.output.resize()
    os.killpg(child.pid, 28)
    child.wait(LONG)
    assert show.output.settle(LONG)
    side.until(b"211\r\n")
    finished(show)


def test_settings_that_an_attempt_left_behind_are_put_right_for_the_next(stage, finished):
    show = stage(Side("terminal"))
    before = termios.tcgetattr(show.output.stdout)
    show.run(python("import tty; tty.setraw(1)"))
    assert termios.tcgetattr(show.output.stdout) != before
    show.output.copy_settings()
    assert termios.tcgetattr(show.output.stdout) == before
    finished(show)

"""`stallguard top` shows a run until a key ends it, and gives the terminal back."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_top_without_a_terminal_is_one_status(life):
    answer = top(life, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    assert answer.communicate(timeout=30)[0].decode().startswith("one  train.py\n  state")
    assert answer.returncode == 0


def test_top_says_why_an_order_is_refused_and_stays(life):
    life.refusal = "not today"
    mine, theirs = pty.openpty()
    process = top(life, stdin=theirs, stdout=theirs)
    os.close(theirs)
    try:
        until(mine, b"2.5 a second")
        os.write(mine, b"m")
        until(mine, b"the run refused to mute; not today")
        os.write(mine, b"q")
        until(mine, b"\x1b[?1049l")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert life.wishes() == []


@pytest.mark.waits
def test_top_shows_the_run_takes_its_keys_and_gives_the_terminal_back(life):
    mine, theirs = pty.openpty()
    process = top(life, stdin=theirs, stdout=theirs)
    os.close(theirs)
    try:
        seen = until(mine, b"2.5 a second")
        os.write(mine, b"d")
        seen += until(mine, b"a dump is being kept")
        os.write(mine, b"m")
        seen += until(mine, b"are left alone for an hour")
        life.snapshot = life.snapshot | {"muted": 3599.0}
        seen += until(mine, b"stall handling paused until")
        os.write(mine, b"m")
        until(mine, b"are acted upon again")
        os.write(mine, b"q")
        seen += until(mine, b"\x1b[?1049l")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert life.wishes() == [("dump", ""), ("mute", ""), ("mute", "0")]
    assert b"51/100 loss: 0.25" in seen


def top(life, **streams):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    return subprocess.Popen([sys.executable, "-m", "stallguard", "top"], env=env, stderr=subprocess.DEVNULL, **streams)


def until(descriptor, words):
    seen, deadline = b"", time.monotonic() + 20
    while words not in seen:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        try:
            seen += os.read(descriptor, 1 << 16)
        except OSError:  # Linux says so where the other end is closed
            break
    assert words in seen
    return seen

"""`stallguard top` on a terminal of 60 x 20, beside two real runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .runs import RUN, SCRIPTS

pytestmark = pytest.mark.live
WIDTH, HEIGHT = 60, 20
SCREEN = re.compile(rb"\x1b\[H|\x1b\[\?1049[hl]")  # what begins another screen
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Screen:
    """What a terminal of 60 x 20 received."""

    def __init__(self, terminal: int) -> None:
        self._terminal, self._received = terminal, b""

    def until(self, *words: str) -> list[str]:
        """Return the first screen that has all the words."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if select.select([self._terminal], [], [], 1)[0]:
                with contextlib.suppress(OSError):  # Linux says so where the other end is closed
                    self._received += os.read(self._terminal, 1 << 16)
            for part in SCREEN.split(self._received):
                shown = ESCAPE.sub("", part.decode(errors="replace"))
                if all(word in shown for word in words):
                    self._received = b""
                    return [line.rstrip() for line in shown.replace("\r", "").split("\n")]
        raise AssertionError((words, self._received[-3000:]))

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())


@contextlib.contextmanager
def runs(home: Path) -> Iterator[None]:
    """Let two loops train."""
    env = {**os.environ, "STALLGUARD_HOME": str(home)}
    quiet = ["--quiet", "--python", sys.executable]
    loop = [str(SCRIPTS / "loop.py"), "evening", "4000", "0.05"]
    made = []
    try:
        for name in ("alpha", "beta"):
            command = [*RUN, *quiet, "--name", name, *loop]
            made.append(subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            time.sleep(1.1)  # the newest is shown first, and ids have seconds
        yield
    finally:
        for process in made:
            process.terminate()
        for process in made:
            process.wait(60)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    mine, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    env |= {"STALLGUARD_HOME": str(tmp_path), "TERM": "xterm"}
    with runs(tmp_path):
        until_live(tmp_path, 2)
        top = subprocess.Popen(
            [sys.executable, "-m", "stallguard", "top"], env=env, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        try:
            shown = Screen(mine)
            yield shown
            shown.type("q")
            assert top.wait(20) == 0
        finally:
            top.kill()
            top.wait()
            os.close(mine)


def until_live(home: Path, number: int) -> None:
    end = time.monotonic() + 60
    while len(list(home.glob("runs/2*/probe/*.page"))) < number:
        assert time.monotonic() < end
        time.sleep(0.1)


def test_top_shows_curves_switches_runs_and_pauses_at_60_x_20(screen: Screen) -> None:
    lines = screen.until("-beta", "pace", "CPU", "memory", "? help")
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH
    assert re.search(r"pace +[▁▂▃▄▅▆▇█ ]+ +[\d.]+/s", "\n".join(lines))

    screen.type("?")
    assert "Keys" in screen.until("the list of live runs", "quit; the training goes on")[0]
    screen.type("?m")
    paused = screen.until("paused", "stall handling paused until")
    assert any(re.search(r"stall handling paused until \d\d:\d\d", line) for line in paused)
    screen.type("m")
    screen.until("stalls are acted upon again")

    screen.type("\t")
    screen.until("-alpha", "pace")
    screen.type("l")
    assert any("> 1" in line and "-alpha" in line for line in screen.until("2 live runs", "-alpha", "-beta"))
    screen.type("j\r")
    screen.until("-beta", "pace")

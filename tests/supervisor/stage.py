"""The user's side of an Output, and children that write into it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

from stallguard.supervisor.output import OutputCarrier
from stallguard.supervisor.output_log import OutputLog
from stallguard.supervisor.terminal_lines import choose, look

LONG = 60.0  # seconds; only a broken test waits that long
ROOT = Path(__file__).parent.parent.parent


class Side:
    """The user's side of one descriptor: a pipe or a terminal, read to its end in a thread."""

    def __init__(self, kind, read=True):
        self.ours, self.given = os.openpty() if kind == "terminal" else os.pipe()
        self.data = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if read:
            self._thread.start()

    def _read(self):
        with contextlib.suppress(OSError):
            while chunk := os.read(self.ours, 1 << 16):
                self.data += chunk

    def until(self, text):
        until = time.monotonic() + LONG
        while text not in self.data and time.monotonic() < until:
            time.sleep(0.005)
        assert text in self.data

    def close(self):
        os.close(self.given)
        if self._thread.ident:
            self._thread.join(LONG)
        with contextlib.suppress(OSError):
            os.close(self.ours)


class Stage:
    """An Output between children and the user's sides."""

    def __init__(self, path, out, err, **more):
        self.out, self.err, self.troubles = out, err, []
        streams = choose(look(out.given), look(err.given))
        self.path = path
        log = OutputLog(path, self.troubles.append, **more.pop("log", {}))
        self.output = OutputCarrier(
            streams, log, self.troubles.append, targets=(out.given, err.given), tap=more.pop("tap", None)
        )
        self.children = []

    def start(self, argv, **more):
        child = subprocess.Popen(
            argv, stdout=self.output.stdout, stderr=self.output.stderr, start_new_session=True, **more
        )
        self.children.append(child)
        return child

    def until_blocked(self):
        """Wait until the child has filled what the user does not take."""
        until = time.monotonic() + LONG
        while self.output.blocked(time.monotonic()) < 0.05 and time.monotonic() < until:
            time.sleep(0.005)
        assert self.output.blocked(time.monotonic()) >= 0.05

    def run(self, argv, **more):
        return self.start(argv, **more).wait(LONG)

    def close(self):
        for child in self.children:
            with contextlib.suppress(OSError):
                os.killpg(child.pid, 9)
            child.wait()
        self.output.finish(LONG)
        for side in {self.out, self.err}:
            side.close()


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]

"""A Python process that hangs in a chosen way, and the context in which its evidence is gathered."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
import time

from stallguard.collectors import EvidenceContext
from stallguard.storage import run_files

LONG = 20.0
SECRET = "s3cr3t-hunter2222"

ARMED = """
    import ctypes, faulthandler, signal, sys, threading, time
    faulthandler.register(signal.SIGURG, file=open(sys.argv[1], "a"), all_threads=True, chain=False)

    def go():
        print("go", flush=True)

    def lock():
        it = threading.Lock()
        it.acquire()
        go()
        it.acquire()  # here

    def spin():
        go()
        count = 0
        while True:
            count += 1
            count -= 1
            time.sleep(0)

    def gil():
        libc = ctypes.PyDLL(None)
        mutex = ctypes.create_string_buffer(128)
        libc.pthread_mutex_lock(mutex)
        go()
        libc.pthread_mutex_lock(mutex)

    def stopped():
        go()
        signal.raise_signal(signal.SIGSTOP)

    def reads():
        go()
        sys.stdin.buffer.raw.read(1)
        sys.stdin.buffer.raw.read(1)

    globals()[sys.argv[2]]()
"""


class Stuck:
    """A Python process that hangs, and the directory of a run around it."""

    def __init__(self, place, kind):
        self.run = place
        (place / "probe").mkdir()
        self.script = place / "train.py"
        self.script.write_text(textwrap.dedent(ARMED))
        self.stacks = place / "probe" / "1.stacks"
        argv = [sys.executable, str(self.script), str(self.stacks), kind, "--api-key", SECRET]
        self.argv = tuple(argv)
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"go\n"
        time.sleep(0.1)  # from the word to the wait itself

    def context(self, **more):
        pid = self.process.pid
        given = {
            "incident": 1, "pid": pid, "armed": True, "stacks": self.stacks, "run": self.run, "home": "/home/ada",
            "directory": self.run / "incidents" / "1", "argv": self.argv, "cwd": str(self.run),
            "environment": {"WANDB_API_KEY": SECRET, "TF_THING": "1"}, "identity": run_files.identity(pid),
        }  # fmt: skip
        return EvidenceContext(**(given | more))

    def at(self, text, function):
        """Return where a dump should find the process: the line of the script with `text`."""
        lines = self.script.read_text().splitlines()
        return f"train.py:{1 + next(n for n, line in enumerate(lines) if text in line)} in {function}"

    def close(self):
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def context(tmp_path, **more):
    given = {"incident": 1, "pid": os.getpid(), "armed": False, "stacks": tmp_path / "x", "directory": tmp_path / "1"}
    return EvidenceContext(**(given | more))


def item(manifest, name):
    return next(each for each in manifest.items if each.name == name)

"""Inside a training of `scripts/bench state`: an audit hook that notes what the script reports, and kills it.

The script cannot reach the hook, so no checkpoint holds its counts.
"""

import atexit
import json
import os
import signal
import subprocess
import sys


class Moments:
    """The hook of one attempt.  `kill`: ("batch" or "save", number) of the last moment or file operation."""

    def __init__(self, notes, kill=None, saves=""):
        """`notes`: descriptor of a file; `saves`: the folder of the checkpoints."""
        self._notes = notes
        self._kind, self._last = kill or ("", 0)
        self._saves = saves
        self._counts = {"batch": 0, "save": 0}

    def install(self):
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if event == "state.moment":
            self._count("batch")
        elif event in ("open", "os.rename", "os.remove") and self._saves:
            if str(arguments[0]).startswith(self._saves):
                self._count("save")
        elif event in ("state.past", "state.result", "state.began"):
            self._write([event[6:], *arguments])

    def _write(self, line):
        os.write(self._notes, (json.dumps(line, default=repr) + "\n").encode())

    def _count(self, kind):
        self._counts[kind] += 1
        if kind == self._kind and self._counts[kind] == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def finished(self):
        """Note how many moments there were."""
        self._write(["counts", self._counts])


def begin(folder):
    """Install the hook as the files in `folder` say: for an attempt under a real `stallguard run`."""
    with open(os.path.join(folder, "kills.json")) as file:
        kills = json.load(file)
    attempt = len([name for name in os.listdir(folder) if name.startswith("notes-")])
    notes = os.open(os.path.join(folder, f"notes-{attempt}.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    kind, number = kills[attempt] if attempt < len(kills) else ("", 0)
    if kind == "time":
        subprocess.Popen(["/bin/sh", "-c", f"sleep {number}; kill -9 {os.getpid()}"], start_new_session=True)
    from _stallguard_probe import settings

    moments = Moments(notes, (kind, number), settings.of(os.environ).checkpoints)
    moments.install()
    atexit.register(moments.finished)

"""Keeps the machine awake while stallguard is alive: caffeinate on macOS, systemd-inhibit on Linux.

The helper is a process that ends with stallguard, even after a kill.  Never `caffeinate -d`: a display that stays
on triggers the GPU watchdog that ends trainings, and one that is off does no harm.  Must not decide whether to keep
the machine awake; must not fail a run.

On order it puts the display of a Mac to sleep (`run --display-sleep`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import NamedTuple

from stallguard.core.readings import Machine

Which = Callable[[str], str | None]
WHY = "a training is guarded"
PMSET = "/usr/bin/pmset"
FIRST_BATCHES = 8  # of an attempt, after which its training is known to run: what fails at once leaves the display on


class AwakePlan(NamedTuple):
    """How to keep the machine awake.  `command` is empty if there is no way; `words`: the message."""

    command: tuple[str, ...]
    words: str
    by_pipe: bool = False  # the helper ends when its standard input does


def plan(pid: int, platform: str = sys.platform, which: Which = shutil.which) -> AwakePlan:
    """Return how to keep this machine awake while the process `pid` is alive.

    -i: no idle sleep; -s: none at all on mains power; -w: until that process ends.  caffeinate(8).
    """
    if platform == "darwin":
        caffeinate = ("/usr/bin/caffeinate", "-i", "-s", "-w", str(pid))
        return AwakePlan(caffeinate, "caffeinate keeps the Mac awake")
    inhibit, cat = which("systemd-inhibit"), which("cat")
    if inhibit is None or cat is None:
        return AwakePlan((), "nothing keeps this machine awake: there is no systemd-inhibit")
    command = (inhibit, "--what=sleep:idle", "--who=stallguard", f"--why={WHY}", "--mode=block", cat)
    return AwakePlan(command, "systemd-inhibit keeps the machine awake", by_pipe=True)


def warnings(machine: Machine | None) -> list[str]:
    """Return messages about what puts the machine to sleep nevertheless."""
    if machine is None:
        return []
    found = []
    if machine.power == "battery":
        found.append("running on battery: stallguard cannot prevent sleep when it is low; connect mains power")
    if machine.lid_closed:
        found.append("the lid is closed: without a display and mains power the machine sleeps; open it")
    return found


class Awake:
    """Keeps the machine awake from its creation until `close`, or until this process ends."""

    def __init__(self, how: AwakePlan) -> None:
        """Start the helper; no error if the machine cannot be kept awake."""
        self.words = how.words
        self._helper: subprocess.Popen[bytes] | None = None
        self._said: list[str] = []  # by a helper that ended
        if not how.command:
            return
        given = subprocess.PIPE if how.by_pipe else subprocess.DEVNULL
        try:
            self._helper = subprocess.Popen(
                how.command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
            )  # fmt: skip
            assert self._helper.stderr is not None  # noqa: S101 - a pipe, as asked
            os.set_blocking(self._helper.stderr.fileno(), False)
        except OSError as error:
            self.words = f"nothing keeps this machine awake: {how.command[0]}: {error.strerror}"

    def trouble(self) -> str | None:
        """Return why the machine is no longer kept awake, or None; call it repeatedly.  Never blocks."""
        if self._helper is None or self._helper.poll() is None:
            return None
        if not self._said and self._helper.stderr is not None:
            said = self._helper.stderr.read() or b""
            self._said = said.decode(errors="replace").strip().splitlines()
        reason = self._said[-1] if self._said else f"its helper ended with {self._helper.returncode}"
        return f"the machine is not kept awake: {reason}"

    def close(self) -> None:
        """Let the machine sleep again."""
        if self._helper is None:
            return
        for end in (self._helper.stdin, self._helper.stderr):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()
        self._helper.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._helper.wait(2)
        self._helper = None


def is_display_due(attempt: int, batches: int, last: int) -> bool:
    """Return whether to put the display to sleep now.  `last`: the attempt in which that was done, 0: in none.

    Once in each attempt: the user can wake the display, and what the display's watchdog ended had it on.
    """
    return attempt > last and batches >= FIRST_BATCHES


class DisplaySleep:
    """Puts the display to sleep by `pmset displaysleepnow` (pmset(1)), and changes no setting of the machine."""

    def __init__(self, platform: str = sys.platform, pmset: str = PMSET) -> None:
        """Nothing is started yet."""
        self._command = (pmset, "displaysleepnow") if platform == "darwin" else ()
        self._last = 0
        self._helper: subprocess.Popen[bytes] | None = None
        self.words = "" if self._command else "--display-sleep does nothing on this system: it is for a Mac's display"

    def look(self, attempt: int, batches: int) -> str:
        """Start the command if that is due; return what came of it, "" if there is no news.  Never blocks."""
        if self._helper is not None:
            code = self._helper.poll()
            if code is None:
                return ""
            self._helper = None
            if code:
                return f"the display was not put to sleep: {' '.join(self._command)} ended with {code}"
            return "put the display to sleep, as ordered by --display-sleep"
        if not self._command or not is_display_due(attempt, batches, self._last):
            return ""
        self._last = attempt
        try:
            self._helper = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            return f"the display was not put to sleep: {self._command[0]}: {error.strerror}"
        return ""

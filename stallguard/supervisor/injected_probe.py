"""The probe in a process that runs already, by `sys.remote_exec` of Python 3.14 and later (PEP 768).

Only an interpreter of the same version can ask, so the process' own executable is run for it, isolated.  The process
does what it is asked for in its main thread, when that next runs Python code: never inside a native call, which can
take long.  Linux wants the same user and no stricter rule for tracing, macOS root; PYTHON_DISABLE_REMOTE_DEBUG, -X
disable-remote-debug or how Python was built can refuse it.  All this is tried, never supposed.

The order is a file that the process reads later, so it stays in the run's directory.  It names nothing in the script's
own module, and raises nothing.  At the end of the watch a second one takes the probe out.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from stallguard.host.psutil_errors import ERRORS
from stallguard.probe.settings import VARIABLE
from stallguard.storage import private

PYTHON = re.compile(r"python[\d.]*[a-z]?", re.IGNORECASE)  # on macOS it is Python.app/Contents/MacOS/Python
LONGEST = 10.0  # seconds for an interpreter to start and ask
WAITS = 60.0  # seconds for the main thread to run Python code
EVERY = 0.2
# Runs in the executable of the process.  argv: its number and the file of the order; none: only whether it could ask.
ASK = """
import sys
if not hasattr(sys, "remote_exec"):
    sys.exit("it runs Python %d.%d, and only 3.14 and later take a probe while they run" % sys.version_info[:2])
try:
    if sys.argv[1:]:
        sys.remote_exec(int(sys.argv[1]), sys.argv[2])
except Exception as error:
    sys.exit("%s: %s" % (type(error).__name__, error))
"""
# These run in the process, in a namespace of their own.
WITHDRAW = """
import os, sys
def leave():
    package = sys.modules.get(NAME)
    if getattr(package, "injected", False):  # left there by a watch that was killed
        package.probe.withdraw()
        for name in [one for one in sys.modules if one.partition(".")[0] == NAME]:
            del sys.modules[name]
"""
ENTER = (
    WITHDRAW
    + """
try:
    leave()
    if NAME in sys.modules:
        raise RuntimeError("it has a probe already")
    package = sys.modules[NAME] = type(sys)(NAME)
    package.__path__, package.injected = [FOLDER], True
    os.environ[VARIABLE] = SETTINGS
    from _stallguard_probe import bootstrap
    bootstrap.enter(os.environ, package)
    package.probe.appear()
except Exception as error:
    with open(ANSWER, "w") as file:
        file.write("%s: %s" % (type(error).__name__, error))
"""
)
LEAVE = (
    WITHDRAW
    + """
try:
    leave()
except Exception:
    pass  # the watch is over: no user waits for the reason
"""
)


def refusal(pid: int) -> str:
    """Return why no probe can be loaded into the process; "" if that can be tried."""
    executable = _executable(pid)
    return _run(executable, []) if executable else "it is not known to be Python"


def enter(pid: int, probe: Path, settings: str, place: Path) -> str:
    """Order the process to load the probe from the folder `probe`; return why it refuses, "" if it does not.

    `settings`: for the probe (probe/settings.py); `place`: a directory of the run.
    """
    return _order(pid, place / f"{pid}.enter.py", ENTER, FOLDER=str(probe), VARIABLE=VARIABLE, SETTINGS=settings,
                  ANSWER=str(_answer(pid, place)))  # fmt: skip


def leave(pid: int, place: Path) -> None:
    """Order the process to remove its probe; one that has ended needs no order."""
    _order(pid, place / f"{pid}.leave.py", LEAVE)


def await_entry(pid: int, place: Path, is_over: Callable[[], bool]) -> str:
    """Return "" once the probe is in, else why it is not; waits up to WAITS seconds, for a thread of its own.

    `is_over`: whether the watch has ended, so that the answer is not needed.
    """
    until = time.monotonic() + WAITS
    while time.monotonic() < until and not is_over():
        if (place / f"{pid}.page").exists():
            return ""
        if _answer(pid, place).exists():
            return _answer(pid, place).read_text(errors="replace")
        time.sleep(EVERY)
    return f"its main thread has run no Python code for {WAITS:g} s; the probe begins when it does"


def _answer(pid: int, place: Path) -> Path:
    return place / f"{pid}.refused"


def _executable(pid: int) -> str:
    """Return the program of a process if it is Python by its name, as nothing else may be started here."""
    try:
        found = psutil.Process(pid).exe()
    except ERRORS:
        return ""
    return found if PYTHON.fullmatch(Path(found).name) else ""


def _order(pid: int, file: Path, code: str, **names: str) -> str:
    values = {"NAME": "_stallguard_probe", **names}
    try:
        private.write(file, f"exec({code!r}, {values!r})\n".encode(errors="surrogateescape"))
    except OSError as error:
        return str(error)
    executable = _executable(pid)
    return _run(executable, [str(pid), str(file)]) if executable else "it has ended"


def _run(executable: str, words: list[str]) -> str:
    """Return what the interpreter says against it."""
    command = [executable, "-I", "-S", "-c", ASK, *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""

"""Children of a bench: the words of a guarded run, the environment that they get, and their end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BENCHES = Path(__file__).resolve().parents[1]
ROOT = BENCHES.parents[1]


def guarding(*words: str, options: Sequence[str] = (), python: str = sys.executable) -> list[str]:
    """Return the command that runs a script with a Python under guard, and says nothing of its own."""
    return [sys.executable, "-m", "stallguard", "run", "--quiet", "--python", python, *options, "--", *words]


def other_python(name: str) -> str | None:
    """Return the interpreter of an environment that `scripts/setup NAME` makes, None if it is not here."""
    named = os.environ.get(f"STALLGUARD_PYTHON_{name.upper()}") or str(ROOT / ".venvs" / name / "bin" / "python")
    return named if Path(named).exists() else None


def environment(home: Path | None = None, /, **more: str) -> dict[str, str]:
    """Return the variables of a child, without those of this machine's stallguard.  `home`: where its runs are kept."""
    user = {name: value for name, value in os.environ.items() if not name.startswith("STALLGUARD_")}
    kept = {"STALLGUARD_HOME": str(home)} if home else {}
    # Libraries can be on the path of this process alone, for want of an environment.
    path = os.pathsep.join(filter(None, (str(ROOT), user.get("PYTHONPATH"))))
    return {**user, "PYTHONPATH": path, **kept, **more}


def started(
    command: Sequence[str], home: Path, cwd: Path | None = None, output: Path | None = None, **more: str
) -> Child:
    """Start a child that keeps its runs in `home`, in `cwd` or there.  `output`: the file that it prints into."""
    to = output.open("wb") if output else None
    try:
        return subprocess.Popen(
            command, env=environment(home, **more), cwd=cwd or home, stdin=subprocess.DEVNULL,
            stdout=to or subprocess.DEVNULL, stderr=to or subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        if to:
            to.close()


def ended(child: Child, seconds: float, grace: float = 60.0) -> int | None:
    """Wait for the end of a child; return its exit code, None if it had to be ended, which it has `grace` for."""
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        child.kill()
    return None


def until(holds: Callable[[], object], seconds: float, period: float = 0.5) -> bool:
    """Wait until something holds; return whether it does, at the latest after so many seconds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() >= end:
            return False
        time.sleep(period)
    return True


Child = subprocess.Popen[bytes]

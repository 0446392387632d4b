"""The report of a run that has ended, written by a process of its own.

Arrays and templates take 50 to 110 MB for a second, which a supervisor must not keep.  Must not raise, and
must not import what the report is made with.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAME = "report.html"
ROOT = Path(__file__).resolve().parents[2]  # as the child's directory: nothing of the user's can be imported
PATIENCE = 20.0  # seconds; a night of 8 hours takes one


def write(run_dir: Path, seconds: float = PATIENCE) -> Path | None:
    """Write report.html into `run_dir`, in at most `seconds`; return its path, None if it could not be made."""
    command = [sys.executable, "-m", "stallguard", "report", str(run_dir.resolve()), "--html"]
    try:
        subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=seconds, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None  # a run must end without its report too; `stallguard report` shows what is wrong
    return run_dir / NAME

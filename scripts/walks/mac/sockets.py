"""The check of the sockets of runs: are they where nothing cleans up?

macOS removes what was not used for three days from /tmp and $TMPDIR.  `scripts/live --three-days` waits for that.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from mac.guarded import BEATS, QUIET, started
from mac.scene import Scene, until
from mac.table import Row, judged
from stallguard.storage import run_files

A_DAY = 86400.0  # seconds
COMES = 30.0


def checks(scene: Scene) -> Iterator[Row]:
    """Start a run, ask it for its status, and look where its control socket is."""
    script, enough = scene.home / "sockets.py", scene.home / "sockets-enough"
    script.write_text(BEATS)
    temporary = Path(tempfile.gettempdir())
    with started(scene, "run", "--python", sys.executable, *QUIET, str(script), str(enough)) as one:
        until(lambda: one.beats > 0, COMES)
        asked = run_files.asked(one.run) if one.run else None
        said = scene.stallguard("status", one.run.id if one.run else "last")
        enough.touch()
        until(lambda: one.process.poll() is not None, COMES)
    age = oldest(temporary.iterdir(), time.time())
    yield verdict(asked.control if asked else "", scene.kept, said.code, age)


def verdict(control: str, kept: Path, status: int, age: float | None) -> Row:
    """Whether a control socket answers, and is beside the runs.  `age`: seconds of the oldest temporary file."""
    beside = control.startswith(str(kept))
    oldest_file = "none" if age is None else f"{age / A_DAY:.1f} days old"
    figure = f"{'beside the runs' if beside else control or 'no socket'}; status: exit code {status}; the oldest "
    means = "a run can be reached" + ("" if beside else "; the home's path is too long for a socket beside the runs")
    return judged("control socket", status == 0 and bool(control), f"{figure}temporary file: {oldest_file}",
                  means, "the run cannot be reached")  # fmt: skip


def oldest(paths: Iterable[Path], now: float) -> float | None:
    """Return the seconds since the oldest of these files was used; None if there is none."""
    used = []
    for path in paths:
        try:
            facts = path.lstat()
        except OSError:
            continue
        used.append(max(facts.st_atime, facts.st_mtime))
    return now - min(used) if used else None

"""The check of a training that ends while no stallguard watches it: is its exit code known afterwards?

It is the way of a job, without a service manager: `agent work` is what launchd and systemd start.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

from mac.guarded import BEATS, QUIET, started
from mac.scene import Scene, until
from mac.table import Row, judged
from stallguard.storage import run_files

NAME = "scripts-live-orphan"
CODE = 7
COMES = 30.0  # seconds for a run to begin, and to be concluded
BATCHES = 10  # before stallguard is killed


def checks(scene: Scene) -> Iterator[Row]:
    """Kill stallguard, let the training end, and start stallguard again as a service manager does."""
    script, enough = scene.home / "orphan.py", scene.home / "orphan-enough"
    script.write_text(BEATS)
    words = ("agent", "work", "--name", NAME, "--at", "login", "--", "--observe", "--python", sys.executable, *QUIET,
             "--", str(script), str(enough))  # fmt: skip
    with started(scene, *words) as first:
        until(lambda: first.beats > BATCHES, COMES)
        run, who = first.run, first.training()
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        if run is None or who is None:
            yield judged("end without stallguard", holds=False, figure="no training", means="it did not begin")
            return
        survived = run_files.lives(who)
        enough.write_text(str(CODE))
        until(lambda: not run_files.lives(who), COMES)
        with started(scene, *words):
            until(lambda: run_files.outcome(run) is not None, COMES)
    end = run_files.outcome(run)
    seen = "no outcome" if end is None else f"exit code {end.code}, {end.batches} batches, {end.attempts} attempts"
    yield judged("end without stallguard", survived and end is not None and (end.code, end.attempts) == (CODE, 1),
                 f"outlived stallguard: {survived}; {seen}",
                 "the exit code of a training that ended unwatched is known afterwards",
                 "a finished training would be started again, or a failed one count as finished")  # fmt: skip

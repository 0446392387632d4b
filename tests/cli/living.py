"""Runs that seem to live, for the verbs that ask them."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from click.testing import CliRunner

from stallguard.core.events import Event
from stallguard.storage import paths, run_files
from stallguard.storage.run_files import Outcome, RunRequest
from stallguard.supervisor.control import Control

SNAPSHOT = {
    "schema": 1, "run": "one", "state": "running", "attempt": 2, "pid": 4711, "factor": 2, "device": "default",
    "seconds": 3725.0, "batches": 12_345, "silent": 0.4, "judgement": {"step": "healthy", "threshold": 12.0},
    "progress": {"phase": "step", "epoch": 2, "epochs": 10, "batch": 50, "batches": 100, "loss": 0.25, "beats": 9},
    "readings": {"machine": {"idle": 0.61},
                 "device": {"utilisation": 0.87, "memory_bytes": 6_200_000_000, "power_watts": 21.5},
                 "process": {"footprint_bytes": 5_100_000_000},
                 "memory": {"available_bytes": 16_000_000_000, "pressure": "normal"}},
    "rates": {"batches": 2.5, "cpu": 1.7}, "findings": [], "incidents": 1, "lost": 82.0,
}  # fmt: skip
STALLED = SNAPSHOT | {
    "state": "holding", "silent": 75.0, "judgement": {"step": "stalled", "threshold": 12.0},
    "findings": [{"cause": "device-wait", "confidence": 0.8}],
}  # fmt: skip


class Life:
    """A run that seems to live: this very process guards it, and its control socket is real."""

    def __init__(self, home: Path, name: str) -> None:
        self.run = paths.RunDir(home / "runs" / name)
        self.run.path.mkdir(parents=True)
        self.place = paths.socket_dir("/tmp")
        self.posted: list[Event] = []
        self.snapshot = SNAPSHOT | {"run": name}
        self.refusal = ""
        self.control = Control(
            self.place / "control", self.posted.append, time.monotonic, lambda: self.snapshot,
            lambda _verb: self.refusal,
        )  # fmt: skip
        me = run_files.identity(os.getpid())
        run_files.write(
            self.run.asked,
            RunRequest(1, name, ["train.py"], ["python", "train.py"], "/", "2026-03-07T22:30:00Z", me,
                     control=str(self.control.path)),
        )  # fmt: skip
        self.run.output.write_bytes(b"Epoch 3\n\r50/100 loss: 0.3\x1b[0m\r51/100 loss: 0.25")

    def wishes(self) -> list[tuple[str, str]]:
        return [(event.verb, event.argument) for event in self.posted]

    def close(self) -> None:
        self.control.close()
        shutil.rmtree(self.place)


def over(home, name="ended", code=0):
    run = paths.RunDir(home / "runs" / name)
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(2**22 + 1, 0.0)
    run_files.write(run.asked, RunRequest(1, name, ["train.py"], [], "/", "2026-03-07T22:30:00Z", ended_process))
    run_files.write(run.path / "outcome.json", Outcome(1, code, "it ended", "2026-03-07T23:30:00Z", 60.0, 5, 0, 1, 0.0))
    return run


def say(command, *words):
    return CliRunner().invoke(command, words, catch_exceptions=False)

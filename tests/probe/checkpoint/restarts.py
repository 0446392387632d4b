"""Attempts of one run whose child kills itself where it is told, and what each of them trained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.probe.receiver import Heard, Receiver

OFTEN = {"checkpoint_every": 0, "checkpoint_cost": 1}  # after every batch


@dataclass
class Attempt:
    """One attempt: the rows that it printed, and (fit, epoch, batch) of every batch that it trained."""

    heartbeat: Heard
    rows: list
    trained: list

    def notes(self, kind="resume"):
        """Return the sentences of one kind of note."""
        return [note["text"] for note in self.heartbeat.notes if note["kind"] == kind]


# By interpreter, script, arguments and environment: without the probe it ends the same each time.
_undisturbed: dict[tuple[object, ...], Attempt] = {}


class Restarts:
    """A script and the folders of its run."""

    def __init__(self, receiver: Receiver, folder: Path, script: Path, interpreter: str, **environment: Any) -> None:
        """Nothing is started yet."""
        self.receiver = receiver
        self.folder = folder
        self.checkpoints = folder / "checkpoints"
        self.command = [interpreter, str(script)]
        self.environment = environment
        self.attempts = 0

    def undisturbed(self, *arguments: str, **more: Any) -> Attempt:
        """Run the script once without the probe, in a directory of its own; the tests of a file share the result."""
        interpreter, script = self.command
        environment = {**self.environment, **more}
        key = (interpreter, Path(script).read_text(), arguments, *sorted(environment.items()))
        if key not in _undisturbed:
            alone = Restarts(self.receiver, self.folder / "undisturbed", Path(script), interpreter, **environment)
            alone.folder.mkdir()
            _undisturbed[key] = alone.attempt(*arguments, guarded=False)
        return _undisturbed[key]

    def attempt(self, *arguments: str, kill="", resume=False, guarded=True, **more: Any) -> Attempt:
        """Run the script once; it ends itself where `kill` says ("fit,epoch,batch"), by SIGTERM if "term" begins it."""
        self.attempts += 1  # its token: places of processes are counted anew in each attempt
        # There it is no file of the training's, which a resume would continue.
        trace = self.receiver.folder / "probe" / "trace"
        trace.unlink(missing_ok=True)
        checkpoints = {**OFTEN, "checkpoints": str(self.checkpoints), "resume": resume}
        key = self.folder / "signing.key"  # of the user
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        checkpoints["key"] = str(key)
        checkpoints |= {"seed": "4711", "token": self.attempts}
        heartbeat = self.receiver.run(
            [*self.command, *arguments],
            timeout=300,
            cwd=self.folder,
            TRACE=str(trace),
            KILL=kill,
            **{**(checkpoints if guarded else {"STALLGUARD_OWNER": "1"}), **self.environment, **more},
        )
        expected = 0 if not kill else -15 if kill.startswith("term") else -9
        assert heartbeat.code == expected, heartbeat.err[-3000:]
        assert not [note for note in heartbeat.notes if note["kind"] in ("aside", "trouble")]
        rows = [json.loads(line) for line in heartbeat.out.splitlines() if line.startswith("{")]
        lines = trace.read_text().splitlines() if trace.exists() else []
        return Attempt(heartbeat, rows, [tuple(int(word) for word in line.split()) for line in lines])

"""Runs `stallguard run` for real and reads what it left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stallguard.core.events import AnyEvent
from stallguard.storage import journal
from tests.probe.imported import ForkServers

SCRIPTS = Path(__file__).parent / "scripts"
# A program for `python -c` that is `stallguard` and whose runs end without a report, which takes them 0.3 s of 0.5 s.
NO_REPORT = """
from stallguard.cli import main
from stallguard.report import subprocess_writer
subprocess_writer.write = lambda *_: None
"""
RUN = (sys.executable, "-c", NO_REPORT + "main()", "run")
# The same in tests/probe/children/fork_server.py: its trainings are forks of a process that has imported their library.
FORKS = f"""{NO_REPORT}
import json, os, socket, sys
from stallguard.supervisor import child
channel = socket.socket(fileno=int(os.environ.pop("SG_FORKS")))
channel.set_inheritable(False)
class Forked:
    def __init__(self, pid):
        self.pid = pid
    def poll(self):
        os.waitpid(self.pid, os.WNOHANG)
def spawn(argv, env, cwd, stdout, stderr):
    order = {{"argv": argv[1:], "environment": dict(env), "folder": cwd or os.getcwd()}}
    streams = [1 if stdout is None else stdout, 2 if stderr is None else stderr]
    socket.send_fds(channel, [json.dumps(order).encode()], streams)
    return Forked(int(channel.recv(20)))
child.spawn = spawn
main()
"""
# The beginning of a program for `python -c` that spoils one of our own functions and then is `stallguard`: its first
# word says where that function is (module/class/name); `spoil` puts another in its place.
SPOILED = f"""{NO_REPORT}
import importlib, sys
module, *owners, name = sys.argv.pop(1).split("/")
place = importlib.import_module(module)
for owner in owners:
    place = getattr(place, owner)
whole = getattr(place, name)
def spoil(other):
    setattr(place, name, other)
    main()
"""
# Lines of a script that lets stallguard save and load its number `step`.
COUNTER = """
def save(path):
    with open(path, "w") as file:
        file.write(str(step))
def load(path):
    global step
    step = int(open(path).read())
stallguard.checkpoint(save, load)
"""
# The Python that trains: any from 3.9 on.
GUARDED = os.environ.get("STALLGUARD_GUARDED_PYTHON", sys.executable)
Guard = Callable[..., "Guarded"]  # `guard`, or the fixture `guard_keras`
AT_ONCE = ("--set", "detector.act_after=1s")  # act as soon as it is judged


class Guarded(NamedTuple):
    """A run that is over."""

    code: int
    out: bytes
    err: str
    run: Path | None

    @property
    def lines(self) -> list[journal.JournalEntry]:
        """Its journal."""
        assert self.run is not None
        return list(journal.read(self.run / "journal.jsonl"))

    @property
    def events(self) -> list[AnyEvent]:
        """Its events."""
        assert self.run is not None
        return list(journal.events(self.run / "journal.jsonl"))

    def actions(self, event: str) -> list[dict[str, Any]]:
        """Its actions of one kind: "attempt.signalled"."""
        return [msgspec.json.decode(entry.raw) for entry in self.lines if entry.line.event == event]

    def announced(self, message: str) -> list[dict[str, str]]:
        """The facts of each announcement of `message`, by its name in the narrative."""
        return [entry.line.facts for entry in self.lines if entry.line.event == message]

    def outcome(self) -> dict[str, Any]:
        """Its outcome.json."""
        assert self.run is not None
        found: dict[str, Any] = msgspec.json.decode((self.run / "outcome.json").read_bytes())
        return found


def stallguard(
    home: Path,
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    report: bool = False,
    servers: ForkServers | None = None,
) -> Guarded:
    """Run the command line with its runs in `home`.

    `report`: a run writes its report, as users have it.  `servers`: on Linux they fork its trainings of Keras.
    """
    environment = {**os.environ, "STALLGUARD_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3", **(env or {})}
    if servers is not None and sys.platform == "linux":
        code, out, err = _forked(servers, words, environment, cwd or Path.cwd())
    else:
        program = [sys.executable, "-m", "stallguard"] if report or words[:1] != ("run",) else RUN[:-1]
        done = subprocess.run(
            [*program, *words], env=environment, cwd=cwd, capture_output=True,
            check=False, timeout=400, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        code, out, err = done.returncode, done.stdout, done.stderr
    latest = home / "runs" / "latest"
    return Guarded(code, out, err.decode(), latest.resolve() if latest.exists() else None)


def _forked(
    servers: ForkServers, words: tuple[str, ...], environment: dict[str, str], cwd: Path
) -> tuple[int, bytes, bytes]:
    backend = environment.get("KERAS_BACKEND", "tensorflow")
    server = servers.of(words[words.index("--python") + 1], backend)
    with tempfile.TemporaryDirectory(prefix="sg-") as folder:
        program = [sys.executable, "-c", FORKS, *words]
        run = server.fork(program, cwd, environment, Path(folder) / "run", guard=True)
        out, err = run.printed(400)
    assert run.returncode is not None
    return run.returncode, out, err


def guard(home: Path, *words: str, **how: Any) -> Guarded:
    """Run `stallguard run --python GUARDED` with further options and COMMAND.  `how`: see `stallguard`."""
    return stallguard(home, "run", "--python", GUARDED, *words, **how)

"""A stage for one fault: its own runs, its own working directory, and every process that begins on it.

Each process inherits a variable with the stage's mark, so what outlives its run is found and ended by its pid, however
far it went from its parent.  Output goes to files, so that no reader holds anything up.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

import psutil

from stallguard.errors import StallguardError
from stallguard.storage import journal, run_files
from stallguard.storage.paths import RunDir, list_runs
from stallguard.supervisor.control import ask

MARK = "CHAOS_STAGE"
LONGEST = "CHAOS_SECONDS"  # a variable with another value of LONG
LONG = float(os.environ.get(LONGEST, "60"))  # seconds that something can take on a slow machine
KEYS = [
    f"detector.rows.{row}.{prior}{kind}"
    for row in ("step", "unclassified", "importing", "idle")
    for prior in ("", "prior_")
    for kind in ("deadlock", "external")
]
# A stall is judged after 3 s without progress, and acted upon at once.
SHARP = ("--set", "detector.act_after=1s", *(word for key in KEYS for word in ("--set", f"{key}=3s")))
# Silence is judged by its length as well, also if the process is at work.
SHARPER = (
    "--set", "detector.rows.unclassified.working=3s", "--set", "detector.rows.unclassified.prior_working=3s",
)  # fmt: skip
# N batches of S seconds, each with a line; the exit code shows that the script itself came to its end.
BATCHES = """
import sys, time, stallguard
for number in range(int(sys.argv[1])):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(float(sys.argv[2]))
raise SystemExit(7)
"""


class Broken(Exception):
    """A promise that was not kept; the words say what was seen instead."""


def expect(condition: object, seen: str) -> None:
    if not condition:
        raise Broken(seen)


def until(what: Callable[[], Any], words: str, seconds: float = LONG) -> Any:
    """Return the first true answer of `what`.  Raises Broken if it does not come."""
    end = time.monotonic() + seconds
    while not (answer := what()):
        expect(time.monotonic() < end, f"not within {seconds:.0f} s: {words}")
        time.sleep(0.02)
    return answer


def steps(count: int) -> list[str]:
    return [f"step {number}" for number in range(count)]


class Ended(NamedTuple):
    """A process that is over."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode(errors="replace").splitlines()

    @property
    def own_errors(self) -> list[str]:
        """What is on standard error beside stallguard's own lines."""
        kept, ours = [], False
        for line in self.err.splitlines():
            ours = line.startswith("stallguard:") or (ours and line.startswith("  "))
            kept += [] if ours else [line]
        return kept


def living(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if process.environ().get(MARK) == str(folder):
                found.append(process)
    return found


class Live:
    """A run that goes on, or a plain process."""

    def __init__(self, stage: Stage, process: subprocess.Popen[bytes], out: Path, err: Path, before: set[str]) -> None:
        """Use `Stage.start`.  `before`: the runs that there were."""
        self.stage, self.process, self.out, self.err, self.before = stage, process, out, err, before

    @property
    def pid(self) -> int:
        return self.process.pid

    def reached(self, count: int, seconds: float = LONG) -> None:
        until(lambda: self.out.read_bytes().count(b"\n") >= count, f"{count} lines of output", seconds)

    def training(self) -> psutil.Process:
        """Return the process of the newest attempt, once stallguard watches it."""
        until(lambda: {one.id for one in list_runs(self.stage.home / "runs")} - self.before, "a run")
        run = self.stage.run()
        noted = until(lambda: run_files.recall_attempt(run), "the record of the attempt")
        until(lambda: self.stage.events("sensor.sampled"), "the first reading of the sensors")
        return psutil.Process(noted.process.pid)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.ended()

    @property
    def pipe(self) -> IO[bytes]:
        """Its output, if that goes into a pipe."""
        assert self.process.stdout is not None  # noqa: S101 - a pipe
        return self.process.stdout

    def said(self, words: str, seconds: float = LONG) -> None:
        until(lambda: words in self.err.read_text(errors="replace"), f"the words {words!r}", seconds)

    def ended(self, seconds: float = LONG) -> Ended:
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Broken(f"no end within {seconds:.0f} s") from None
        return Ended(code, self.out.read_bytes(), self.err.read_text(errors="replace"))

    def ends(self, code: int) -> Ended:
        """Wait for its end.  Raises Broken if it has another exit code."""
        ended = self.ended()
        expect(ended.code == code, f"exit code {ended.code}, not {code}: {ended.err[-300:]}")
        return ended


class Stage:
    """Use it in a `with`: at its end all its processes are ended."""

    def __init__(self, folder: Path, package: Path | None = None) -> None:
        """Make the directories of the stage in `folder`.

        `package`: the directory of a copy of stallguard that runs in place of ours, in all processes of the stage.
        """
        self.folder, self.home, self.work = folder, folder / "home", folder / "work"
        self.work.mkdir(parents=True)
        (folder / "tmp").mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith("STALLGUARD_")}
        self.env = {
            **kept, "STALLGUARD_HOME": str(self.home), MARK: str(folder), "TMPDIR": str(folder / "tmp"),
            "XDG_DATA_HOME": str(folder / "data"), "TF_CPP_MIN_LOG_LEVEL": "3",
        }  # fmt: skip
        self.env.pop("PYTHONPATH", None)
        self.copy = str(package) if package else ""
        self._count = 0
        self._opened: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self.living():
            with contextlib.suppress(psutil.Error):
                process.kill()
        for opened in self._opened:
            opened.wait(LONG)
            if opened.stdout is not None:
                opened.stdout.close()

    def living(self) -> list[psutil.Process]:
        return living(self.folder)

    def script(self, text: str, name: str = "train.py") -> str:
        (self.work / name).write_text(text)
        return str(self.work / name)

    def guarding(self, words: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        python = [sys.executable, "-P", "-m", "stallguard", "run", "--python", sys.executable]
        return [*python, *options, *(("--", *words) if words[0] in ("sh", sys.executable) else words)]

    def start(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **how: Any) -> Live:
        """Start a command.  `how`: as subprocess.Popen."""
        self._count += 1
        before = {run.id for run in list_runs(self.home / "runs")}
        out, err = (self.folder / f"{kind}-{self._count}" for kind in ("out", "err"))
        with out.open("wb") as to, err.open("wb") as to_errors:
            how = {"stdin": subprocess.DEVNULL, "stdout": to, "stderr": to_errors, "cwd": self.work, **how}
            process = subprocess.Popen(command, env=self._environment(env or {}), **how)
        self._opened.append(process)
        return Live(self, process, out, err, before)

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process: the stage's and `more`, with the copy of stallguard in front."""
        whole = {**self.env, **more}
        if self.copy:
            whole["PYTHONPATH"] = os.pathsep.join(filter(None, (self.copy, whole.get("PYTHONPATH"))))
        return whole

    def guard(self, *words: str, options: Sequence[str] = (), **how: Any) -> Live:
        return self.start(self.guarding(words, options), **how)

    def watched(self, script: str, *words: str, **how: Any) -> Live:
        """Start a run of a script, and wait until its training is watched."""
        live = self.guard(self.script(script), *words, **how)
        live.training()
        return live

    def plain(self, *words: str, **how: Any) -> Ended:
        command = words if words[0] in ("sh", sys.executable) else (sys.executable, *words)
        return self.start(command, **how).ended()

    def verb(self, *words: str) -> Ended:
        return self.start([sys.executable, "-P", "-m", "stallguard", *words]).ended()

    def ask(self, verb: str) -> dict[str, Any] | None:
        with contextlib.suppress(StallguardError):
            found = run_files.asked(self.run())
            return ask(found.control, verb) if found else None
        return None

    def run(self, *, wait: bool = False) -> RunDir:
        if wait:
            until(lambda: list_runs(self.home / "runs"), "a run")
        return list_runs(self.home / "runs")[-1]

    def events(self, name: str) -> list[dict[str, Any]]:
        entries = journal.read(self.run().journal)
        return [json.loads(entry.raw) for entry in entries if entry.line.event == name]

    def outcome(self) -> run_files.Outcome:
        found = run_files.outcome(self.run())
        expect(found is not None, "the run has no outcome")
        assert found is not None  # noqa: S101 - expected above
        return found

    def journal(self) -> str:
        return "\n".join(entry.raw.decode(errors="replace") for entry in journal.read(self.run().journal))

    @contextlib.contextmanager
    def small_disk(self, place: Path, size: str, *more: str) -> Iterator[None]:
        """Mount a small file system at `place` for the length of a block."""
        place.mkdir(parents=True, exist_ok=True)
        options = ",".join((f"size={size}", "mode=700", *more))
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "chaos", place], check=True, capture_output=True)
        try:
            yield
        finally:
            for process in self.living():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for opened in self._opened:
                opened.wait(LONG)
            subprocess.run(["umount", "-l", place], check=True, capture_output=True)

    def job(self, *words: str, options: Sequence[str] = ()) -> Callable[[], Live]:
        """Return what starts a job of these words, as its service manager does, each time it is called."""
        memory = self.home / "agents" / "night.json"
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text('{"wanted": true}')
        python = ("--python", sys.executable, "--set", "notify.desktop=off")
        command = [sys.executable, "-P", "-m", "stallguard", "agent", "work", "--name", "night", "--", *python,
                   *options, "--", *words]  # fmt: skip
        return lambda: self.start(command, process_group=0)

    def remove_sockets(self) -> None:
        """Remove the sockets that a killed stallguard could not remove; a later run sweeps those of old runs only."""
        for place in (self.home / "s").glob("*"):
            shutil.rmtree(place)

    def left_over(self, spared: Sequence[int] = ()) -> list[str]:
        """Return what a run that is over has left: processes, sockets, files in TMPDIR."""
        end = time.monotonic() + 5.0
        while (found := [one for one in self.living() if one.pid not in spared]) and time.monotonic() < end:
            time.sleep(0.05)
        left = []
        for one in found:
            with contextlib.suppress(psutil.Error):
                left.append(f"process {' '.join(one.cmdline())[-60:]!r}")
        sockets = self.home / "s"
        left += [f"sockets {path.name}" for path in (sockets.iterdir() if sockets.is_dir() else ())]
        temporary = self.folder / "tmp"
        entries = (path for path in temporary.rglob("*") if not (path.is_dir() and any(path.iterdir())))
        left += [f"file {path.relative_to(temporary)}" for path in entries]
        return left


def same(stage: Stage, *words: str, options: Sequence[str] = (), **how: Any) -> Ended:
    """Run the words without stallguard and with it; return the guarded end.  Raises Broken unless they are equal."""
    plain = stage.plain(*words, **how)
    ended = stage.guard(*words, options=options, **how).ended()
    code = plain.code if plain.code >= 0 else 128 - plain.code  # as a shell has it
    expect(ended.code == code, f"exit code {ended.code}, without stallguard {code}: {ended.err[-300:]}")
    expect(ended.out == plain.out, f"other output: {ended.out[-200:]!r}, without stallguard {plain.out[-200:]!r}")
    errors = [re.sub(r"0x\w+", "", line) for line in ended.own_errors]
    expected = [re.sub(r"0x\w+", "", line) for line in plain.own_errors]
    expect(errors == expected, f"other errors: {errors[-4:]}, without stallguard {expected[-4:]}")
    return ended


def whole(ended: Ended, count: int, code: int = 7) -> str:
    """Return in words that BATCHES came to its own end.  Raises Broken if it did not."""
    expect(ended.code == code, f"exit code {ended.code} in place of {code}: {ended.err[-300:]}")
    printed = [line for line in ended.lines if line.startswith("step")]
    expect(printed == steps(count), f"{len(printed)} of {count} lines: {printed[-3:]}")
    return f"{count} batches, exit code {code}"


def counted(live: Live, count: int) -> str:
    """Return in words that BATCHES came to its own end, and that each batch was counted.  Raises Broken if not."""
    seen, batches = whole(live.ended(), count), live.stage.outcome().batches
    expect(batches == count, f"{batches} batches counted of {count}")
    return seen


def limit(pid: int, what: int, values: tuple[int, int]) -> None:
    """Set a limit of a process that runs (RLIMIT_...); only Linux can."""
    if sys.platform == "linux":
        resource.prlimit(pid, what, values)

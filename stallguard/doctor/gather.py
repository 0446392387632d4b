"""Gathers the facts: the only module of the doctor that reads this machine.

Takes about a second; must not judge.

It also finds out whether a program `stallguard` on PATH is this one: the name on the package index belongs to another.
Reads files only; it never starts a program that is possibly not stallguard.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from stallguard import collectors, notify, plugins, sensors
from stallguard.agent import due_starts, manager
from stallguard.agent.service_manager import own_system
from stallguard.config import Config
from stallguard.core.readings import Device
from stallguard.doctor.facts import Environment, FleetFacts, Heavy, MachineFacts, PlaceFacts, StoreFacts
from stallguard.errors import StallguardError
from stallguard.host import system
from stallguard.host.guarded_folders import guarded
from stallguard.host.psutil_errors import ERRORS
from stallguard.report import trace
from stallguard.storage import paths, run_files

VARIABLES = ("HOME", "KERAS_BACKEND", "KMP_DUPLICATE_LIB_OK", "TF_USE_LEGACY_KERAS")
SAMPLE = 0.7  # seconds between two measurements of the processes
BUSY, LARGE = 0.25, 0.1  # of a core, of the memory: less is not reported
LARGE_BYTES = 2e9
MOST, WHO = 5, 3  # reported names; reported processes of one name
GROUPS = (sensors.PLUGINS, collectors.PLUGINS)
SWAP = Path("/private/var/vm")  # where macOS creates its swap files

DISTRIBUTION = "stallguard_train"  # as directories of installed metadata spell it
HEAD_MAX = 1024  # bytes; an interpreter's path of more is refused by every kernel
# A script names its interpreter in its first line, or, if that path is long or has blanks, behind a shell's exec.
_SCRIPT_HEAD = re.compile(r"\A#!\s*(?:/bin/sh\s+'''exec' \"?)?([^\n\"]+?)(?:\"? \"\$0\"[^\n]*)?\s*$", re.MULTILINE)


def facts(
    environment: Environment, variables: Mapping[str, str], config: Config,
    store: StoreFacts | None = None, fleet: FleetFacts | None = None,
) -> MachineFacts:  # fmt: skip
    """Return all facts.  `variables`: the user's environment; `store`, `fleet`: what was found of them, if asked for.

    Raises StallguardError if no process can be read.
    """
    run_files.require_processes()
    watch = system.MachineWatch()
    began = time.monotonic()
    watch.read(began, {os.getpid()}, 0.0)
    memory = system.memory()
    heavy = tuple(loudest(_working(SAMPLE), memory.total))
    return MachineFacts(
        system="Darwin" if sys.platform == "darwin" else "Linux",
        environment=environment,
        variables={name: variables[name] for name in VARIABLES if name in variables},
        about=system.facts(),
        memory=memory,
        machine=watch.read(time.monotonic(), {os.getpid()}, system.asleep()),
        device=_device(),
        preferences=system.preferences(),
        places=tuple(_places()),
        socket_trouble=_socket_trouble(),
        working=str(Path.cwd()),
        guarded=(guarded(Path.cwd(), Path.home()) or "") if sys.platform == "darwin" else "",
        heavy=heavy,
        runs=tuple(run.id for run in paths.list_runs() if run_files.state(run) == "running"),
        added=tuple(entry for group in GROUPS for entry in plugins.installed(group)),
        jobs=due_starts.jobs(manager(own_system(), os.environ)),
        foreign_command=program_of_another(shutil.which("stallguard", path=variables.get("PATH", ""))),
        notifies_desktop=config.notify.desktop,
        notifies_addresses=bool(config.notify.urls),
        has_apprise=notify.has_apprise(),
        unusable_addresses=notify.unusable(config.notify.urls) if notify.has_apprise() else (),
        wants_traces=bool(config.metrics.otlp),
        has_otel=trace.is_installed(),
        let_sleep=config.run.let_sleep,
        store=store,
        fleet=fleet,
    )


def _device() -> Device | None:
    try:
        reading: Device | None = system.Gpu().read(())
    except (OSError, TimeoutError):  # the driver does not answer; the sensors report it during a run
        return None
    return reading


def _places() -> Iterator[PlaceFacts]:
    yield place("runs", paths.runs_dir())
    yield place("checkpoints and results", Path.cwd())
    yield place("temporary files", Path(tempfile.gettempdir()))
    if SWAP.is_dir():
        yield place("swap", SWAP)


def place(what: str, path: Path) -> PlaceFacts:
    """Return the facts of a directory, or of the one in which it would be created."""
    there = next(parent for parent in (path, *path.parents) if parent.exists())
    writable = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return PlaceFacts(what, str(path), writable, shutil.disk_usage(there).free, there.stat().st_dev)


def _socket_trouble() -> str:
    try:
        paths.socket_dir().rmdir()
    except (StallguardError, OSError) as error:
        return str(error)
    return ""


def _working(seconds: float) -> list[Heavy]:
    """Return the use of each process except stallguard's, over a sample of `seconds`."""
    try:
        processes = list(psutil.process_iter())
    except ERRORS:  # then no process is reported
        processes = []
    before = {process: _cpu(process) for process in processes}
    time.sleep(seconds)
    ours = {os.getpid(), os.getppid()}
    found = []
    for process, earlier in before.items():
        if process.pid in ours or earlier is None or (now := _cpu(process)) is None:
            continue
        name, memory = f"process {process.pid}", 0
        with contextlib.suppress(*ERRORS):  # as in _cpu
            name = process.name()
        with contextlib.suppress(*ERRORS):
            memory = process.memory_info().rss
        found.append(Heavy(name, 1, (now - earlier) / seconds, memory, (_who(process),)))
    return found


def loudest(found: list[Heavy], total: int | None) -> list[Heavy]:
    """Return those to report, the busiest first, processes of one name together.

    `total`: the machine's memory in bytes; if it is not known, a process is large from LARGE_BYTES on.
    """
    large = LARGE * total if total else LARGE_BYTES
    by_name: dict[str, Heavy] = {}
    for one in sorted(found, key=_weight, reverse=True):
        so_far = by_name.get(one.name, Heavy(one.name, 0, 0.0, 0))
        both = (so_far.count + one.count, so_far.cores + one.cores, so_far.memory + one.memory)
        by_name[one.name] = Heavy(one.name, *both, (*so_far.who, *one.who)[:WHO])
    named = [one for one in by_name.values() if one.cores >= BUSY or one.memory >= large]
    return sorted(named, key=_weight, reverse=True)[:MOST]


def _weight(one: Heavy) -> tuple[float, int]:
    return one.cores, one.memory


def _cpu(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except ERRORS:  # it ended, or belongs to another user: macOS then denies access
        return None
    return times.user + times.system


def _who(process: psutil.Process) -> str:
    """Return a process by its pid, and by its script if it runs one: many processes are named python."""
    try:
        words = process.cmdline()
    except ERRORS:  # as above
        words = []
    script = script_in(words)
    return f"{script}, pid {process.pid}" if script else f"pid {process.pid}"


def script_in(words: Sequence[str]) -> str:
    """Return the script or module in the command line of an interpreter, without its directory; "" if there is none."""
    if not words or not _INTERPRETER.match(Path(words[0]).name):
        return ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return f"-m {next(rest, '')}"
        if word == "-c":
            return "-c"
        if word in _WITH_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            return Path(word).name
    return ""


_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*t?$", re.IGNORECASE)  # "Python" in a framework build of macOS
_WITH_VALUE = ("-W", "-X")


def program_of_another(program: str | None) -> str:
    """Return `program` if it is not installed by this distribution; "" if it is, or if there is none."""
    if program is None:
        return ""
    try:
        with Path(program).open("rb") as file:
            head = file.read(HEAD_MAX).decode(errors="replace")
    except OSError:
        return program
    match = _SCRIPT_HEAD.match(head)
    if match is None:  # no script
        return program
    interpreter = Path(match[1])
    if interpreter == Path(sys.executable):
        return ""
    metadata = f"lib/python3*/site-packages/{DISTRIBUTION}-*.dist-info"
    return "" if any(interpreter.parent.parent.glob(metadata)) else program

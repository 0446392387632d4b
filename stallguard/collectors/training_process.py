"""The process that trains: found from the pages that the probe keeps, and asked for its Python stacks.

A page remains after its process ends, and another process can get the same pid: a process that began after its page was
last written is another one.

The stacks are asked for through the page, else by one signal.  The probe's thread writes them while it has the
interpreter's lock, so no other thread changes its frames meanwhile.  If it does not answer, the lock is held, or the
process does not run.  Then the handler of the signal writes them: it is faulthandler's, in C, and works inside native
waits too.  It is no first choice, because it crashes if another thread runs Python code (see stack_dumps.py).  The
signal is sent only to a process whose probe reported the handler; it would kill any other.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec
import psutil

from stallguard.collectors import EvidenceContext, Nothing
from stallguard.core.events import ProbeConnected
from stallguard.host import system
from stallguard.host.psutil_errors import ERRORS
from stallguard.probe import wire
from stallguard.storage import cells, journal, run_files
from stallguard.storage.paths import RunDir

COARSE = 1.0  # seconds; times of files and processes are rounded differently
GREETINGS = 5000  # lines at the beginning of a journal in which the probe's report is searched for

ASKED = 1.0  # seconds for the probe's thread to answer; it looks 20 times a second
LOOK = 0.01  # seconds between two checks of the file
QUIET = 0.1  # seconds without growth after which the text is complete
MAX = 1 << 20  # bytes


class TrainingProcess(msgspec.Struct, frozen=True):
    """A live process with the probe in it."""

    run: RunDir
    pid: int
    beats: int
    armed: bool  # it handles the stack-dump signal
    sent: int  # nanoseconds, monotonic: the probe's last record
    progress: int = 0  # nanoseconds, monotonic: its last progress


def find(run: RunDir, pid: int = 0) -> TrainingProcess | None:
    """Return the live process of a run that trains, or its process `pid`; None if there is none.

    Of several that have trained, the one that has made no progress for longest: that one is probably stalled.
    Of several that have not, the one with the newest record.
    """
    living = []
    for page in sorted(run.probe.glob("*.page")):
        record: dict[str, int] | None = None
        with contextlib.suppress(OSError):
            record = wire.unpack(page.read_bytes())
        if record is None or pid not in (0, record["pid"]) or not _is_same(record["pid"], page):
            continue
        armed = bool(record["flags"] & wire.FLAG_STACKS_ARMED)
        living.append(
            TrainingProcess(run, record["pid"], record["beats"], armed, record["sent_ns"], record["progress_ns"])
        )
    trained = [training for training in living if training.beats > 0]
    if trained:
        return min(trained, key=lambda training: training.progress)
    return max(living, key=lambda training: training.sent, default=None)


def _is_same(pid: int, page: Path) -> bool:
    """Return whether the process `pid` is alive and began before its page was last written."""
    with contextlib.suppress(*ERRORS):
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= page.stat().st_mtime + COARSE
    return False


def context(training: TrainingProcess, directory: Path) -> EvidenceContext:
    """Return the context of a dump on demand."""
    run, pid = training.run, training.pid
    asked = run_files.asked(run)
    argv, cwd = (tuple(asked.argv), asked.cwd) if asked else ((), "")
    environment: dict[str, str] = {}  # macOS hides that of some interpreters
    with contextlib.suppress(*ERRORS):
        environment = dict(psutil.Process(pid).environ())
    versions: dict[str, str] = {}
    for _, event in zip(range(GREETINGS), journal.events(run.journal), strict=False):
        if isinstance(event, ProbeConnected):
            versions |= event.versions
    return EvidenceContext(
        incident=0, pid=pid, armed=training.armed, stacks=run.probe / f"{pid}.stacks", directory=directory,
        run=run.path, identity=run_files.identity(pid), since=run.path.stat().st_ctime, argv=argv, cwd=cwd,
        environment=environment, versions=versions, home=str(Path.home()),
        script=script_of(argv, cwd),
    )  # fmt: skip


def script_of(argv: tuple[str, ...], cwd: str) -> Path | None:
    """Return the script's file, if a word of the command line names one."""
    named = [word for word in argv if word.endswith(".py")]
    path = Path(cwd, named[0]) if named else None
    return path if path is not None and path.is_file() else None


def request_stacks(context: EvidenceContext, seconds: float, quiet: float = QUIET) -> str:
    """Return the dump, waiting at most `seconds`; it is complete after `quiet` seconds without growth.

    Raises Nothing if the process must not be signalled or cannot answer, TimeoutError if it does not answer.
    """
    if context.identity is not None and not run_files.lives(context.identity):
        raise Nothing("the process is gone")
    try:
        status: str = psutil.Process(context.pid).status()
    except psutil.NoSuchProcess as error:
        raise Nothing("the process is gone") from error
    except ERRORS:  # its state cannot be read, but it is alive
        status = ""
    if status == psutil.STATUS_STOPPED:
        raise Nothing("the process is stopped: it handles no signal until it is continued")
    if status == psutil.STATUS_ZOMBIE:
        raise Nothing("the process is over")
    before, until = _size(context.stacks), time.monotonic() + seconds
    if not (_asks(context) and _grows(context.stacks, before, min(until, time.monotonic() + ASKED), quiet)):
        if not context.armed:
            raise Nothing("the process has not reported a handler for the stack-dump signal")
        if system.catches(context.pid, context.signal) is False:
            raise Nothing("the script removed the handler of the stack-dump signal, which would end the process")
        os.kill(context.pid, context.signal)
        if not _grows(context.stacks, before, until, quiet):
            raise TimeoutError(f"no answer within {seconds:g} s: the process is stuck in the kernel")
    with context.stacks.open("rb") as file:
        file.seek(before)
        text = file.read(MAX).decode(errors="replace")
    return cells.named(text, context.stacks.parent, context.pid)


def _asks(context: EvidenceContext) -> bool:
    """Ask the probe's thread for the stacks; return whether the process has a page for that."""
    try:
        page = os.open(context.stacks.with_suffix(".page"), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        data = os.pread(page, wire.SIZE, 0)
        record = wire.unpack(data)
        if record is None or record["pid"] != context.pid:
            return False
        return os.pwrite(page, wire.asked(data), wire.SLOT["stacks"] * 8) > 0
    except OSError:
        return False
    finally:
        os.close(page)


def _grows(path: Path, before: int, until: float, quiet: float) -> bool:
    """Wait until the file has grown and stopped growing; False if it has not grown."""
    last, since = before, time.monotonic()
    while (now := time.monotonic()) < until:
        size = _size(path)
        if size != last:
            last, since = size, now
        elif size > before and now - since >= quiet:
            return True
        time.sleep(LOOK)
    return last > before


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 if the system does not show it."""
    try:
        times = psutil.Process(pid).cpu_times()
    except ERRORS:
        return 0.0
    return float(times.user + times.system)

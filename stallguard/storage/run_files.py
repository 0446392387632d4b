"""The small files of a run's directory: its request, its outcome, its present attempt; and its state in lists.

`run.json` and `outcome.json` say what was asked and what became of it.  `attempt.json` has what a later stallguard
needs to guard the present attempt again; its owner alone can read it.  This module must not read the journal, and must
not start or end anything.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from stallguard import jsontext
from stallguard.core import time_spent
from stallguard.core.time_spent import Spent
from stallguard.errors import CANNOT_RUN, StallguardError, ending, has_failed
from stallguard.host import system
from stallguard.probe import disk_order, settings
from stallguard.storage import private
from stallguard.storage.paths import RunDir

SCHEMA = 2
ELSEWHERE = "elsewhere.json"
ROOM = 16 << 10  # bytes kept for an outcome; it takes some 300, and says in one sentence why


class Identity(msgspec.Struct, frozen=True):
    """Identifies a process, also against a later one with the same pid, and after a change of the wall clock.

    `started`: seconds, as host's start_time has them: since the boot on Linux, by the wall clock at its start, which
    the kernel keeps, on macOS.  `boot`: the boot of the machine.
    """

    pid: int
    started: float
    boot: str = ""


class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """run.json: the request, written before the start."""

    schema: int
    id: str = msgspec.field(name="run")
    command: list[str]
    argv: list[str]
    cwd: str
    began: str = msgspec.field(name="started")  # RFC 3339, UTC
    supervisor: Identity
    interpreter: str = ""
    interpreter_why: str = ""
    outside: str = ""  # why the probe cannot enter; "" where it can
    continues: str = ""  # the run whose checkpoints it went on from
    control: str = ""  # path of the control socket while the run lives
    config: dict[str, Any] = {}
    origins: dict[str, str] = {}


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """outcome.json: absent while the run is alive, and if stallguard itself was killed."""

    schema: int
    code: int = msgspec.field(name="exit_code")
    why: str = msgspec.field(name="message")
    ended: str = msgspec.field(name="finished")  # RFC 3339, UTC
    seconds: float = msgspec.field(name="duration_seconds")
    batches: int | None  # null: they could not be counted
    incidents: int  # stalls
    attempts: int
    # What stalls, crashes and restarts cost (core.time_spent.LOST).
    lost: float = msgspec.field(name="lost_seconds")
    effective: float | None = None  # share of the time that trained, 0..1; null: not known, or the run failed
    spent: Spent = Spent()  # where the time went
    crashes: int | None = None  # attempts that ended by themselves, with another code than 0; null: not known
    # Exit code with which the script ended by itself; null: it was ended, or its end is not known.
    script_code: int | None = msgspec.field(name="script_exit_code", default=None)


class Elsewhere(msgspec.Struct, frozen=True):
    """elsewhere.json: the directory is a copy of a run of another machine (fleet.jobs.mirror), as of `at`."""

    schema: int
    job: str
    number: int  # of the job's holder
    host: str
    at: str  # RFC 3339, UTC
    lives: bool  # that holder had the job


class ChannelRecord(msgspec.Struct, frozen=True):
    """What became of the notifications of one channel."""

    channel: str
    sent: int = 0  # accepted so far
    failed: int = 0  # not accepted so far
    why: str = ""  # why the newest one was not accepted; empty if it was
    at: str = ""  # when the newest one was tried, RFC 3339, UTC


class Notified(msgspec.Struct, frozen=True):
    """notifications.json: what became of the notifications of a run; only there if one was tried."""

    schema: int
    channels: list[ChannelRecord]


def ended(
    code: int,
    why: str,
    times: Spent,
    *,
    batches: int | None = 0,
    incidents: int = 0,
    crashes: int | None = None,
    attempts: int = 1,
    script_code: int | None = None,
) -> Outcome:
    """Return the outcome of a run that ends now; `times`: where its time went."""
    rounded = Spent(**{name: round(seconds, 3) for name, seconds in msgspec.structs.asdict(times).items()})
    share = None if has_failed(code, why, script_code) else time_spent.effective(times)
    return Outcome(
        schema=SCHEMA, code=code, why=why, ended=utc(), seconds=round(time_spent.total(times), 3), batches=batches,
        incidents=incidents, crashes=crashes, attempts=attempts, script_code=script_code,
        lost=round(time_spent.total(times, time_spent.LOST), 3),
        effective=None if share is None else round(share, 4), spent=rounded,
    )  # fmt: skip


def utc() -> str:
    """Return the present time in the format of run.json and outcome.json."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def identity(pid: int) -> Identity:
    """Return the identity of a process, a zombie too.  Raises ProcessLookupError if there is none."""
    started = system.start_time(pid)
    if started is None:
        raise ProcessLookupError(errno.ESRCH, f"there is no process {pid}")
    return Identity(pid=pid, started=started, boot=system.boot())


def require_processes() -> None:
    """Raise StallguardError (exit code 126) if the system shows no process: each would look as if it had ended."""
    if system.start_time(os.getpid()) is None:
        raise StallguardError(
            "the state of processes cannot be read",
            why="/proc is not mounted, or shows other processes than those of this PID namespace",
            cure="mount it here (mount -t proc proc /proc), or run stallguard where it is mounted",
            code=CANNOT_RUN,
        )


def lives(who: Identity) -> bool:
    """Return whether this process is alive; a zombie is not."""
    return not is_of_another_boot(who) and system.alive(who.pid, who.started)


def is_of_another_boot(who: Identity) -> bool:
    """Return whether the machine was restarted since that process began."""
    return who.boot != system.boot()


def write(path: Path, value: msgspec.Struct) -> None:
    """Write `value` as JSON, atomically, so that it survives a loss of power.  Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        with open(draft, "wb", opener=private.opener) as file:
            file.write(_text(value))
            _order(file)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    _keep_names(path.parent)


def _text(value: msgspec.Struct) -> bytes:
    return jsontext.exact(value, indent=2) + b"\n"


def _order(file: BinaryIO) -> None:
    file.flush()
    disk_order.order(file.fileno())


def _keep_names(path: Path) -> None:
    # If the file system cannot sync directories, the file itself is written all the same.
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            disk_order.keep(descriptor)
        finally:
            os.close(descriptor)


def keep_room(run: RunDir) -> None:
    """Reserve the disk space of the outcome.  Raises OSError."""
    with open(_room(run), "wb", opener=private.opener) as file:
        file.write(b" " * ROOM)
        _order(file)


def conclude(run: RunDir, end: Outcome) -> None:
    """Write outcome.json, on a full disk into the reserved space.  Raises OSError."""
    path, room = run.path / "outcome.json", _room(run)
    try:
        write(path, end)
    except OSError:
        # If the file system does not overwrite in place, the code below frees the space.
        with contextlib.suppress(OSError):
            _write_into(room, _text(end), path)
            return
        room.unlink(missing_ok=True)
        write(path, end)
    room.unlink(missing_ok=True)


def _write_into(room: Path, text: bytes, path: Path) -> None:
    """Write `text` over the beginning of `room`, which is padded with spaces, and rename it to `path`."""
    with open(room, "r+b", opener=private.opener) as file:
        if len(text) > ROOM:
            raise OSError(errno.ENOSPC, "the reserved space is too small")
        file.write(text)
        _order(file)
    room.replace(path)
    _keep_names(path.parent)


def _room(run: RunDir) -> Path:
    return run.path / ".outcome.room"


def asked(run: RunDir) -> RunRequest | None:
    """Return the request, from its copy if run.json is damaged; None if both are."""
    for path in (run.asked, _copy(run)):
        if (found := jsontext.read(path, RunRequest)) is not None:
            return found
    return None


def keep_asked(run: RunDir, value: RunRequest) -> None:
    """Write the request, twice: it is needed to find a live training.  Raises OSError."""
    write(_copy(run), value)
    write(run.asked, value)


def _copy(run: RunDir) -> Path:
    return run.asked.with_name(".run.json.copy")


def outcome(run: RunDir) -> Outcome | None:
    """Return the outcome, or None if the run has none yet."""
    return jsontext.read(run.path / "outcome.json", Outcome)


def state(run: RunDir) -> str:
    """Return the state of a run.

    running; finished; ended (a watch); stopped (on time, or by an order); interrupted (Ctrl-C); gave up; failed;
    lost (stallguard was killed); trial (of find-batch or compare, over).
    Raises StallguardError if no process can be looked for.
    """
    end = outcome(run)
    if end is not None:
        return "trial" if run.is_trial else ending(end.code, end.why, end.script_code)
    copied = elsewhere(run)
    if copied is not None:  # its process is of another machine, and cannot be looked for here
        return "running" if copied.lives else "lost"
    start = asked(run)
    require_processes()
    return "running" if start is not None and lives(start.supervisor) else "lost"


def elsewhere(run: RunDir) -> Elsewhere | None:
    """Return of which machine's run the directory is a copy; None for a run of this machine."""
    return jsontext.read(run.path / ELSEWHERE, Elsewhere)


def keep_notifications(run: RunDir, channels: list[ChannelRecord]) -> None:
    """Write what became of the notifications of a run.  Raises OSError."""
    write(run.notifications, Notified(1, channels))


def notifications(run: RunDir) -> list[ChannelRecord]:
    """Return what became of the notifications of a run; nothing if there is no file that can be read."""
    found = jsontext.read(run.notifications, Notified)
    return found.channels if found else []


ATTEMPT_SCHEMA = 1


class AttemptRecord(msgspec.Struct, frozen=True):
    """`token`: authenticates the probe's records; `place`: the directory of its sockets."""

    schema: int
    number: int
    process: Identity
    token: int
    place: str
    foreign: bool = False  # stallguard did not start it, and must not end it


def attempt_file(run: RunDir) -> Path:
    """Return the path of the file."""
    return run.path / "attempt.json"


def exit_file(run: RunDir, token: int, number: int) -> Path:
    """Return where the waiter of an attempt writes its exit code.  `number`: of the attempt, as far as it is known."""
    return next(run.path.glob(f"exit-{token:x}.*"), run.path / f"exit-{token:x}.{number}")


def exit_files(number: int) -> str:
    """Return the pattern of the name of that file for the attempt `number`."""
    return f"exit-*.{number}"


def ended_attempt(run: RunDir, number: int, pid: int, file: Path) -> AttemptRecord:
    """Return the record of an attempt that is over and was never recorded.  `file`: its waiter's."""
    token = int(file.name.removeprefix("exit-").partition(".")[0], 16)
    return AttemptRecord(ATTEMPT_SCHEMA, number, Identity(pid=pid, started=-1.0, boot="?"), token, str(run.path))


def current_attempt(run: RunDir) -> AttemptRecord | None:
    """Return the recorded attempt, or a live one that could not be recorded before stallguard was killed."""
    noted = recall_attempt(run)
    return noted if noted is not None and lives(noted.process) else live_attempt(run) or noted


def live_attempt(run: RunDir) -> AttemptRecord | None:
    """Return the live attempt, found by the environment of its process; its number is not known: 0."""
    import psutil  # 10 ms that must not delay the start of the training

    from stallguard.host.psutil_errors import ERRORS

    try:
        processes = list(psutil.process_iter())
    except ERRORS:
        return None
    for process in processes:
        with contextlib.suppress(*ERRORS, KeyError):  # gone, or of another user
            wish = settings.of(process.environ())
            if wish.pages == str(run.probe) and os.getsid(process.pid) == process.pid:
                who = identity(process.pid)
                place = str(Path(wish.socket).parent)
                return AttemptRecord(ATTEMPT_SCHEMA, 0, who, wish.token, place)
    return None


def keep_attempt(run: RunDir, attempt: AttemptRecord) -> bool:
    """Write it atomically; return whether that was possible.  Without it, only a live attempt can be found."""
    try:
        write(attempt_file(run), attempt)
    except OSError:  # a full disk
        return False
    return True


def recall_attempt(run: RunDir) -> AttemptRecord | None:
    """Return it, or None if there is none, it is damaged, or another user wrote it: its process would be ended."""
    with contextlib.suppress(OSError):
        if private.is_ours(attempt_file(run)):
            return jsontext.read(attempt_file(run), AttemptRecord)
    return None

"""Paths: the directory of all runs, one run's directory, the temporary socket directory.

Builds paths and creates directories; must not read or interpret files.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stallguard.core.text import counted, whole_number
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, StallguardError, nearest
from stallguard.host import system
from stallguard.probe.wire import NOT_FINITE
from stallguard.storage import private

LATEST = "latest"
NEWEST = ("last", LATEST)  # names for the newest run
TRIAL = "trial"  # an empty file
ORDER = "order"  # a file: the number of the run among all that were begun here
SEED = "seed"  # file in the checkpoints' directory: the run's seed
SOCKETS, OWNER = "stallguard-", "run"  # prefix of socket directories; the file that names the run of one
BEATS, CONTROL, TRY = "beats", "control", "try"  # sockets in it
SOCKET_PATH_MAX = 103  # bytes; sun_path is 104 with its NUL on macOS (108 on Linux)


class RunDir(NamedTuple):
    """The directory of one run; its name is the run's identity."""

    path: Path

    @property
    def id(self) -> str:
        """The run's name."""
        return self.path.name

    @property
    def asked(self) -> Path:
        """The request: command, facts of the environment, configuration with origins."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """Events, judgements, actions; one JSON object per line."""
        return self.path / "journal.jsonl"

    @property
    def output(self) -> Path:
        """The output of the script, byte for byte."""
        return self.path / "output.log"

    @property
    def notifications(self) -> Path:
        """What became of the run's notifications, by channel; only there if one was tried."""
        return self.path / "notifications.json"

    @property
    def probe(self) -> Path:
        """Pages and stack files of the probe, one per pid."""
        return self.path / "probe"

    @property
    def checkpoints(self) -> Path:
        """Checkpoint generations, from which the run resumes."""
        return self.path / "checkpoints"

    @property
    def trackers(self) -> Path:
        """What W&B, MLflow and TensorBoard chose, which the next attempt goes on with; the probe makes it."""
        return self.path / "trackers"

    def has_checkpoints(self) -> bool:
        """Return whether the run has a checkpoint generation of a process' fit or loop."""
        return any(True for _ in self.checkpoints.glob("*/*/g*"))

    @property
    def is_trial(self) -> bool:
        """Whether it is a trial of find-batch or compare, which lists leave out."""
        return (self.path / TRIAL).exists()

    @property
    def order(self) -> int:
        """How many runs had been begun here when it was, itself included; 0: not recorded.

        A clock can be wrong, and be set right later, so the time in a run's name does not say which run is newer.
        """
        try:
            return whole_number((self.path / ORDER).read_bytes().strip()) or 0
        except OSError:
            return 0

    def set_checkpoints_aside(self, attempt: int) -> None:
        """Move the checkpoints of the attempts before `attempt` to a directory from which none resumes; the seed stays.

        Raises OSError.
        """
        import shutil

        aside = self.path / f"checkpoints-before-{attempt}"
        self.checkpoints.rename(aside)
        private.make(self.checkpoints)
        if (aside / SEED).exists():
            shutil.copy2(aside / SEED, self.checkpoints / SEED)

    def has_broken_checkpoints(self) -> bool:
        """Return whether the run has a checkpoint generation whose values are not finite."""
        return any(True for _ in self.checkpoints.glob(f"*/*/g*/{NOT_FINITE}"))

    def set_broken_checkpoints_aside(self) -> list[Path]:
        """Move the generations whose values are not finite to where none resumes from; return where they are now.

        The newest one that stays has finite values.  Raises OSError.
        """
        moved = []
        for mark in sorted(self.checkpoints.glob(f"*/*/g*/{NOT_FINITE}")):
            old = mark.parent
            new = self.path / "checkpoints-not-finite" / old.relative_to(self.checkpoints)
            while new.exists():
                new = new.with_name(f"{new.name}~")
            private.ensure(new.parent)
            old.rename(new)
            moved.append(new)
        return moved

    def dump(self) -> Path:
        """Return a new directory for a dump on demand, named by the time."""
        return self.path / "dumps" / f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%fZ}"

    def incident(self, number: int) -> Path:
        """Return the directory of incident `number` (from 1)."""
        return self.path / "incidents" / str(number)

    def crash(self, attempt: int) -> Path:
        """Return the directory of the evidence of the crash that ended an attempt."""
        return self.path / "incidents" / f"crash-{attempt}"


def home() -> Path:
    """Return the directory that holds all that stallguard keeps; STALLGUARD_HOME overrides it."""
    override = os.environ.get("STALLGUARD_HOME")
    if override:
        return Path(override)
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else system.user_data()) / "stallguard"


def runs_dir() -> Path:
    """Return the directory of all runs."""
    return home() / "runs"


def new_run(name: str, stamp: str, runs: Path | None = None, *, trial: bool = False) -> RunDir:
    """Make a run directory `<stamp>-<name>` and point `latest` at it, except for a trial of find-batch or compare.

    Raises StallguardError if the directory cannot be written.
    """
    base = runs or runs_dir()
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:40] or "run"
    try:
        private.own(base)
        number = 1 + max((run.order for run in _directories(base)), default=0)
        run = _claim(base, f"{stamp}-{plain}")
        private.write(run.path / ORDER, b"%d\n" % number)
        private.make(run.probe)
        if trial:
            private.write(run.path / TRIAL, b"")
    except OSError as error:
        raise StallguardError(
            f"cannot make a run directory in {base}",
            why=f"{error.strerror}",
            cure="choose another directory: STALLGUARD_HOME=/some/writable/directory",
            code=CANNOT_RUN,
        ) from error
    if not trial:
        point_latest(run)
    return run


def point_latest(run: RunDir) -> None:
    """Point `latest` at a run.  Raises OSError."""
    link = run.path.with_name(f".{LATEST}.{os.getpid()}")
    link.unlink(missing_ok=True)
    link.symlink_to(run.id)
    link.replace(run.path.with_name(LATEST))


def _claim(base: Path, stem: str) -> RunDir:
    for number in range(1, 1000):
        path = base / (stem if number == 1 else f"{stem}-{number}")
        try:
            private.make(path)
        except FileExistsError:
            continue
        return RunDir(path)
    raise OSError(17, f"there are a thousand runs named {stem}")


def list_runs(runs: Path | None = None) -> list[RunDir]:
    """Return all runs, in the order in which they were begun; those of which it is not recorded first, by their names.

    Raises StallguardError if they cannot be read.
    """
    base = runs or runs_dir()
    try:
        # A name that cannot be printed is not one that `new_run` gives, and would steer a terminal.
        found = [run for run in _directories(base) if run.path.name.isprintable() and _is_there(run.path / "run.json")]
        return sorted(found, key=lambda run: (run.order, run.path))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except PermissionError as error:
        raise StallguardError(
            f"cannot read {error.filename or base}",
            why="it belongs to another user, or cannot be read",
            cure="set STALLGUARD_HOME to a directory of your own",
            code=CANNOT_RUN,
        ) from error


def _directories(base: Path) -> list[RunDir]:
    return [RunDir(path) for path in base.iterdir() if path.is_dir() and not path.is_symlink()]


def _is_there(path: Path) -> bool:
    """Return whether a file exists.  Raises PermissionError; `Path.exists` takes that for "no" from Python 3.14 on."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def find_run(
    text: str | None = None, runs: Path | None = None, among: Sequence[RunDir] | None = None, *, anywhere: bool = True
) -> RunDir:
    """Return the run of a name: one rule for every verb.

    None, `last` and `latest` mean the newest run that is no trial; else a directory, an id, the beginning of ids, or a
    part of them means the newest that fits; if several fit, a note is printed on standard error.
    `among`: the runs to choose from, all by default; `anywhere`: a directory elsewhere can be named.
    Raises StallguardError (exit code 3) if there is none.
    """
    if anywhere and text and (Path(text) / "run.json").exists():
        return RunDir(Path(text).resolve())
    known = list_runs(runs) if among is None else among
    if not known:
        raise StallguardError(
            f"there is no run in {runs or runs_dir()}", cure="start one: stallguard run train.py", code=NO_SUCH_RUN
        )
    if text in (None, *NEWEST):
        return newest(known)
    text = text or ""
    hits = [run for run in known if run.id == text] or [run for run in known if run.id.startswith(text)]
    hits = hits or [run for run in known if text in run.id]
    if hits:
        if len(hits) > 1:
            sys.stderr.write(f"stallguard: {text!r} fits {counted(len(hits), 'run')}; the newest is {hits[-1].id}\n")
        return hits[-1]
    near = nearest(text, (run.id for run in known), cutoff=0.3)
    hint = f"did you mean {near}? " if near else ""
    raise StallguardError(f"no run {text!r}", cure=f"{hint}stallguard ls lists them", code=NO_SUCH_RUN)


def newest(runs: Sequence[RunDir]) -> RunDir:
    """Return the newest of some runs, oldest first, that is no trial; if all are trials, the newest of them."""
    return next((run for run in reversed(runs) if not run.is_trial), runs[-1])


def sockets_dirs() -> Iterator[Path]:
    """Yield the possible parents of socket directories, the best first.

    No system service cleans up beside the runs; macOS deletes temporary files after three days.
    """
    yield home() / "s"
    import tempfile  # 3 ms with what it imports, for which the start of a training would wait

    yield Path(tempfile.gettempdir())
    yield Path("/tmp")  # noqa: S108 - the directories in it are private


def socket_dir(base: str | None = None, owner: Path | None = None) -> Path:
    """Make a private directory (0700) whose sockets have paths short enough for AF_UNIX.

    `owner`: the directory of its run, which is written into it.  Raises StallguardError if even the shortest
    path is too long.
    """
    for place in [Path(base)] if base else sockets_dirs():
        try:
            if place.parent == home():
                private.own(place)
            if not private.is_safe(place):
                continue
            path = place / f"{SOCKETS}{os.urandom(4).hex()}"
            private.make(path)
        except OSError:
            continue  # try the next one, then raise one error for all
        if len(os.fsencode(path / CONTROL)) <= SOCKET_PATH_MAX and _takes_sockets(path):
            if owner is not None:
                private.write(path / OWNER, os.fsencode(owner))
            return path
        path.rmdir()
    raise StallguardError(
        "no directory for the sockets of the probe",
        why=f"a socket's path can be {SOCKET_PATH_MAX} bytes long; /tmp is not writable or the path is too long",
        cure="set TMPDIR to a short writable directory",
        code=CANNOT_RUN,
    )


def remove_sockets(place: Path) -> None:
    """Remove a directory of sockets, and nothing that does not belong in one.

    Its path can be read from a file of a run, which another user can have written.
    """
    if not private.is_ours_alone(place):
        return
    for name in (BEATS, CONTROL, TRY, OWNER):
        with contextlib.suppress(OSError):
            (place / name).unlink()
    with contextlib.suppress(OSError):  # gone, or not empty: then it is no directory of sockets
        place.rmdir()


def _takes_sockets(place: Path) -> bool:
    """Return whether the file system has sockets: some network file systems have none."""
    import socket

    path = place / TRY
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
            made.bind(str(path))
        path.unlink()
    except OSError:
        return False
    return True

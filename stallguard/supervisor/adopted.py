"""A training that outlives the stallguard that started it: it is the child of a waiter (supervisor/waiter.py).

The supervisor of that moment notices its end; its exit code is in the file that the waiter writes, also if no
supervisor ran when it ended; a supervisor that started the waiter reads it from a pipe.  If the waiter was killed as
well, macOS reports the end to a process that is not the parent (kqueue), Linux does not: then the code is None, and
means nothing.  Must not decide when anything is ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stallguard.host import process_end
from stallguard.host.process_end import sweep
from stallguard.storage import run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor import waiter
from stallguard.supervisor.child import SHELL, Child, Ended, Post, Watcher, from_kevent, identity_of, refused
from stallguard.supervisor.notices import persistently

LOOK = 0.5  # seconds between two checks if the system does not report the end of a process
UNLOCKED = 2.0  # seconds for a waiter to write, on a file system without locks
AGAIN = 0.2  # seconds between two looks for the file of a waiter that has no room for it yet


def wait_by_kqueue(who: Identity, kernel: Any = select) -> Ended | None:
    """Wait for the end of a process that is not ours; None if the system does not say how it ended."""
    data = process_end.wait(who.pid, lambda: run_files.lives(who), kernel)
    return look_until_gone(who) if data is None else from_kevent(data)


if sys.platform == "darwin":
    wait = wait_by_kqueue
else:

    def wait(who: Identity) -> Ended | None:
        """Wait for the end of a process that is not ours; None: the system does not say how it ended."""
        try:
            descriptor = os.pidfd_open(who.pid)
        except OSError:  # gone already, or a kernel older than 5.3
            return look_until_gone(who)
        try:
            if run_files.lives(who):
                select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
        return None


def look_until_gone(who: Identity) -> Ended | None:
    """Wait for the end by looking; nothing is known of how it ended."""
    while run_files.lives(who):
        time.sleep(LOOK)
    return None


def exit_code(file: Path) -> int | None:
    """Return the exit code that a waiter wrote to `file`; None if it was killed before, or there was none.

    Waits until the waiter has ended: it writes within moments of the training's end, or as soon as the disk has room.
    """
    while not file.exists() and awaited(file.parent, file.name):
        time.sleep(AGAIN)
    try:
        with file.open("rb") as kept:
            try:
                fcntl.flock(kept, fcntl.LOCK_SH)
            except OSError:
                time.sleep(UNLOCKED)
            return int(kept.read())
    except (OSError, ValueError):
        return None


def written(directory: Path, pattern: str) -> Path | None:
    """Return the newest file in `directory` whose name matches, or one that a living waiter is to write."""
    files = sorted(directory.glob(pattern), key=lambda one: one.stat().st_mtime)
    return files[-1] if files else awaited(directory, pattern)


def awaited(directory: Path, pattern: str) -> Path | None:
    """Return the file in `directory`, of a name that matches, that a waiter of ours is to write; None if none lives."""
    import psutil  # 10 ms, for the rare case that the file is missing

    from stallguard.host.psutil_errors import ERRORS

    for process in psutil.process_iter():
        with contextlib.suppress(*ERRORS):  # gone, or of another user
            words = process.cmdline()
            if waiter.__file__ in words and process.uids().real == os.getuid():
                file = Path(words[words.index(waiter.__file__) + 1])
                if file.parent == directory and file.match(pattern):
                    return file
    return None


class Waited(NamedTuple):
    """A waiter, the pid of what it started, and the descriptor from which the exit code can be read."""

    process: subprocess.Popen[bytes]
    pid: int
    code: int


def start_waiter(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, output: tuple[int | None, int | None], file: Path
) -> Waited:
    """Start `argv` below a waiter that writes to `file`.

    `output`: the descriptors for standard output and error.  Raises StallguardError (126 or 127) if the system refuses
    to start `argv`, OSError if the waiter cannot be started.
    """
    read, write = os.pipe()
    waited = None
    try:
        waited = _started(argv, env, cwd, output, file, (read, write))
        return waited
    finally:
        os.close(write)
        if waited is None or waited.code != read:
            os.close(read)


def _started(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, output: tuple[int | None, int | None], file: Path,
    pipe: tuple[int, int],
) -> Waited:  # fmt: skip
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            given = (theirs.fileno(), pipe[1])
            words = [sys.executable, "-I", "-S", waiter.__file__, str(file), *map(str, given)]
            process = subprocess.Popen(
                words, stdout=output[0], stderr=output[1], pass_fds=given, start_new_session=True
            )
        order = [cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
        said: list[bytes] = []
        with contextlib.suppress(ConnectionError):  # it is over already, without a word
            ours.sendall(b"".join(os.fsencode(word) + b"\0" for word in order))
            ours.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: ours.recv(64), b"")).split()
    if len(said) == 1:
        return Waited(process, int(said[0]), pipe[0])
    process.wait()
    if not said:
        raise OSError(errno.ECHILD, "it ended before it started the training")
    what, number = said[1].decode(), int(said[2])
    if number == errno.ENOEXEC and argv[0] != SHELL:
        return start_waiter([SHELL, *argv], env, cwd, output, file)  # as execvp(3) and every shell do
    raise refused(OSError(number, os.strerror(number), cwd if what == "cwd" else argv[0]), argv, cwd)


class Adopted(Child):
    """An attempt's process that is not our child."""

    def __init__(
        self, who: Identity, file: Path, post: Post, before_post: Callable[[], None] = lambda: None,
        waited: Waited | None = None, watcher: Watcher | None = None,
    ) -> None:  # fmt: skip
        """Watch the process `who`, whose waiter writes to `file` and is `waited`, if it is our child.

        `post` and `before_post` are called as Child's; the code is None if it is not known.  `watcher`: what
        does it, else one is started.  Raises StallguardError if there can be none.
        """
        self.pid, self.identity = who.pid, who
        self._file, self._post, self._before_post, self._waited = file, post, before_post, waited
        self._asked = False
        watcher = watcher or Watcher("adopted")
        self._thread = watcher.thread
        watcher.give(self._watch)

    @classmethod
    def start_below_waiter(
        cls, argv: Sequence[str], *, env: Mapping[str, str], file: Path, post: Post, cwd: str,
        stdout: int | None = None, stderr: int | None = None, before_post: Callable[[], None] = lambda: None,
    ) -> Adopted:  # fmt: skip
        """Start `argv` in a session of its own, below a waiter that writes to `file`.  Raises as start_waiter."""
        with Watcher("adopted") as watcher:
            waited = start_waiter(argv, env, cwd, (stdout, stderr), file)
            return cls(identity_of(waited.pid), file, post, before_post, waited, watcher)

    def _is_there(self) -> bool:
        return run_files.lives(self.identity)

    def reap(self) -> None:
        """Nothing: its parent does."""

    def _watch(self) -> None:
        end, code = None, None
        try:
            end = persistently(lambda: wait(self.identity))
            code = self._code()
            code = end.code if code is None and end is not None else code
            if (self._asked or code != 0) and not is_anothers(self.pid):
                sweep(self.pid)
            self._before_post()
        finally:
            persistently(lambda: self._post(code, end.memory_kill if end else None))

    def _code(self) -> int | None:
        """Return the exit code that the waiter says or has written; None if it was killed before."""
        if self._waited is None:
            return exit_code(self._file)
        try:
            said = os.read(self._waited.code, 8)
        finally:
            os.close(self._waited.code)
        self._waited.process.wait()
        return int(said) if said else exit_code(self._file)


def is_anothers(group: int) -> bool:
    """Return whether the leader of a group whose leader has ended lives: the number was given to another process."""
    return run_files.lives(identity_of(group))

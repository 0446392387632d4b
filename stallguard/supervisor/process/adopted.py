"""A training that outlives the stallguard that started it: it is the child of a waiter (supervisor/process/waiter.py).

The supervisor of that moment notices its end; its exit code is in the file that the waiter writes, also if no
supervisor ran when it ended.  If the waiter was killed as well, macOS reports the end to a process that is not the
parent (kqueue), Linux does not: then the code is None, and means nothing.  Offers what supervisor.process.child offers.
Must not decide when anything is ended.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stallguard.host import kqueue_exit
from stallguard.host.process_group import signal_group, sweep
from stallguard.storage import private, run_files
from stallguard.storage.run_files import Identity
from stallguard.supervisor.internal_error import persistently
from stallguard.supervisor.process import waiter
from stallguard.supervisor.process.child import SHELL, Ended, Post, Watcher, from_kevent, identity_of, refused

LOOK = 0.5  # seconds between two checks if the system does not report the end of a process
ROOM = b" " * 8  # in an exit code's file, so that a disk that is full later has room for it
UNLOCKED = 2.0  # seconds for a waiter to write, on a file system without locks


def wait_by_kqueue(who: Identity, kernel: Any = select) -> Ended | None:
    """Wait for the end of a process that is not ours; None if the system does not say how it ended."""
    data = kqueue_exit.wait(who.pid, lambda: run_files.lives(who), kernel)
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

    Waits until the waiter has ended: it writes within moments of the training's end.
    """
    try:
        with file.open("rb") as kept:
            try:
                fcntl.flock(kept, fcntl.LOCK_SH)
            except OSError:
                time.sleep(UNLOCKED)
            return int(kept.read())
    except (OSError, ValueError):
        return None


def start_waiter(
    argv: Sequence[str], env: Mapping[str, str], cwd: str, output: tuple[int | None, int | None], file: Path
) -> tuple[subprocess.Popen[bytes], int]:
    """Start `argv` below a waiter that writes to `file`; return the waiter and the pid of `argv`.

    `output`: the descriptors for standard output and error.  Raises StallguardError (126 or 127) if the system refuses
    to start `argv`, OSError if there is no room for `file`, or the waiter cannot be started.
    """
    private.write(file, ROOM)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            words = [sys.executable, "-I", "-S", waiter.__file__, str(file), str(theirs.fileno())]
            process = subprocess.Popen(
                words, stdout=output[0], stderr=output[1], pass_fds=(theirs.fileno(),), start_new_session=True
            )
        order = [cwd, str(len(argv)), *argv, *(f"{name}={value}" for name, value in env.items())]
        said: list[bytes] = []
        with contextlib.suppress(ConnectionError):  # it is over already, without a word
            ours.sendall(b"".join(os.fsencode(word) + b"\0" for word in order))
            ours.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: ours.recv(64), b"")).split()
    if len(said) == 1:
        return process, int(said[0])
    process.wait()
    if not said:
        raise OSError(errno.ECHILD, "it ended before it started the training")
    what, number = said[1].decode(), int(said[2])
    if number == errno.ENOEXEC and argv[0] != SHELL:
        return start_waiter([SHELL, *argv], env, cwd, output, file)  # as execvp(3) and every shell do
    raise refused(OSError(number, os.strerror(number), cwd if what == "cwd" else argv[0]), argv, cwd)


class Adopted:
    """An attempt's process that is not our child."""

    def __init__(
        self,
        who: Identity,
        file: Path,
        post: Post,
        before_post: Callable[[], None] = lambda: None,
        parent: subprocess.Popen[bytes] | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        """Watch the process `who`, whose waiter writes to `file` and is `parent`, if it is our child.

        `post` and `before_post` are called as Child's; the code is None if it is not known.  `watcher`: what
        does it, else one is started.  Raises StallguardError if there can be none.
        """
        self.pid, self.identity = who.pid, who
        self._file, self._post, self._before_post, self._parent = file, post, before_post, parent
        self._asked = False
        watcher = watcher or Watcher("adopted")
        self._thread = watcher.thread
        watcher.give(self._watch)

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        file: Path,
        post: Post,
        cwd: str,
        stdout: int | None = None,
        stderr: int | None = None,
        before_post: Callable[[], None] = lambda: None,
    ) -> Adopted:
        """Start `argv` in a session of its own, below a waiter that writes to `file`.  Raises as start_waiter."""
        with Watcher("adopted") as watcher:
            process, pid = start_waiter(argv, env, cwd, (stdout, stderr), file)
            return cls(identity_of(pid), file, post, before_post, process, watcher)

    def signal(self, name: str) -> bool:
        """Send a signal to the whole group; False if it is empty."""
        if not run_files.lives(self.identity):
            return False
        self._asked = self._asked or name in ("TERM", "KILL", "INT")
        return signal_group(self.pid, getattr(signal, f"SIG{name}"))

    def reap(self) -> None:
        """Nothing: its parent does."""

    def _watch(self) -> None:
        end, code = None, None
        try:
            end = persistently(lambda: wait(self.identity))
            code = exit_code(self._file)
            if self._parent is not None:
                self._parent.wait()
            code = end.code if code is None and end is not None else code
            if (self._asked or code != 0) and not is_anothers(self.pid):
                sweep(self.pid)
            self._before_post()
        finally:
            persistently(lambda: self._post(code, end.memory_kill if end else None))


def is_anothers(group: int) -> bool:
    """Return whether the leader of a group whose leader has ended lives: the number was given to another process."""
    return run_files.lives(identity_of(group))

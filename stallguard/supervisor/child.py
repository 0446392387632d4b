"""The training process: start it, notice its end, signal its group, leave nothing of it behind.

The child leads a session of its own, so its process group holds all that it starts and nothing of ours.  It
keeps the user's standard input: a terminal may be read from another session, so input(), pdb and getpass
work; only /dev/tty is out of reach.  The thread that waits for the end never reaps, so the number of the
process stays the child's until `reap`: a signal cannot reach another process.
This module must not decide when anything is ended, and nothing here blocks the caller.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from stallguard.errors import CANNOT_RUN, NOT_FOUND, StallguardError
from stallguard.host import process_end
from stallguard.host.process_end import signal_group, sweep
from stallguard.storage.run_files import Identity, identity
from stallguard.supervisor.notices import persistently
from stallguard.worker import REFUSALS, Worker

SHELL = "/bin/sh"  # runs a script that does not begin with #!

Post = Callable[[int | None, bool | None], None]  # the exit code, None if it is not known; killed for memory


class Ended(NamedTuple):
    """How a process ended.  `code` as subprocess has it; `reaped`: nothing is left of it in the kernel."""

    code: int
    memory_kill: bool | None = None  # None: this system does not say
    reaped: bool = False


def from_kevent(data: int) -> Ended:
    """Return what a NOTE_EXIT event of macOS says: the wait status in the low 16 bits, the reason above."""
    return Ended(os.waitstatus_to_exitcode(data & 0xFFFF), process_end.was_memory(data))


def wait_by_kqueue(pid: int, kernel: Any = select) -> Ended:
    """Wait until the child `pid` has ended, and leave it a zombie; reap it if it has ended already."""
    data = process_end.wait(pid, lambda: True, kernel)
    if data is None:
        return Ended(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), reaped=True)
    return from_kevent(data)


if sys.platform == "darwin":
    wait_unreaped = wait_by_kqueue
else:

    def wait_unreaped(pid: int) -> Ended:
        """Wait until the child `pid` has ended, and leave it a zombie: waitid(2) with WNOWAIT."""
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert end is not None  # noqa: S101 - None is the answer to WNOHANG only
        return Ended(end.si_status if end.si_code == os.CLD_EXITED else -end.si_status)


def spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, stdout: int | None, stderr: int | None
) -> subprocess.Popen[bytes]:
    """Start the process.  Raises StallguardError (126 or 127) if the system refuses."""
    try:
        return subprocess.Popen(
            list(argv), env=dict(env), cwd=cwd, stdout=stdout, stderr=stderr, start_new_session=True
        )
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOEXEC and argv[0] != SHELL:
            return spawn([SHELL, *argv], env, cwd, stdout, stderr)  # as execvp(3) and every shell do
        raise refused(error, argv, cwd) from error


def refused(error: OSError | ValueError, argv: Sequence[str], cwd: str | None) -> StallguardError:
    """Return the error that a user can act upon."""
    what = f"cannot run {argv[0]!r}"
    if isinstance(error, FileNotFoundError):
        if cwd is not None and error.filename == cwd:
            return StallguardError(what, why=f"the directory {cwd} is gone", code=CANNOT_RUN)
        return StallguardError(what, why="there is no such program", code=NOT_FOUND)
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return StallguardError(what, why=why, code=CANNOT_RUN)


class Watcher:
    """A thread that is given its work later: to watch a process, once there is one.

    It begins before the process does: a system that grants no thread must refuse while there is no training that
    would be unguarded.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.  Raises StallguardError if the system grants none."""
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = Worker(self._run, name)
        try:
            self.thread.start()
        except REFUSALS as error:
            raise StallguardError(
                "the training cannot be started",
                why=f"the system grants stallguard no thread to watch it ({error})",
                cure="look at the limits of memory and of processes here: ulimit -v, ulimit -u",
            ) from error

    def __enter__(self) -> Self:
        """Return it; what was not given work by the end of the block ends then."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Let the thread end after its work, or without any."""
        self._work.put(None)

    def give(self, work: Callable[[], None]) -> None:
        """Have the thread do `work`, once."""
        self._work.put(work)

    def _run(self) -> None:
        work = self._work.get()
        if work is not None:
            work()


class Child:
    """One attempt's process.  `start`, `signal`, `reap` belong to the deciding thread; none of them blocks."""

    foreign = False  # whether it is a process that stallguard did not start
    blind = False  # nothing can count, or has counted, its batches from its start on
    environment: dict[str, str] | None = None  # of such a process; None: of a child, which gets its own

    def __init__(
        self, process: subprocess.Popen[bytes], post: Post, before_post: Callable[[], None], thread: Worker,
    ) -> None:  # fmt: skip
        """Use `Child.start`."""
        self.pid = process.pid
        self.identity = identity_of(process.pid)
        self._process, self._post, self._before_post = process, post, before_post
        self._asked = False  # we asked it to end
        self._gone = False  # reaped: the number may already be another's
        self._thread = thread

    @classmethod
    def start(
        cls, argv: Sequence[str], *, env: Mapping[str, str], post: Post, cwd: str | None = None,
        stdout: int | None = None, stderr: int | None = None, before_post: Callable[[], None] = lambda: None,
    ) -> Child:  # fmt: skip
        """Start `argv` in a session of its own.

        `post(code, memory_kill)` is called once, from a thread, when it has ended and its group is swept: not
        swept is what a program leaves running on purpose, that is, when it ended with 0 unasked.
        `before_post` runs just before and may wait a little, for the last output.
        Raises StallguardError (126 or 127).
        """
        with Watcher("child") as watcher:
            child = cls(spawn(argv, env, cwd, stdout, stderr), post, before_post, watcher.thread)
            watcher.give(child._watch)
        return child

    def signal(self, name: str) -> bool:
        """Send TERM, KILL, INT, CONT, WINCH ... to the whole group; False if it is empty."""
        if not self._is_there():
            return False
        self._asked = self._asked or name in ("TERM", "KILL", "INT")
        return signal_group(self.pid, getattr(signal, f"SIG{name}"))

    def pass_on(self, number: int) -> None:
        """Send the signal `number` to the process alone."""
        if self._is_there():
            with contextlib.suppress(OSError):  # over already, or of another user (sudo)
                os.kill(self.pid, number)

    def _is_there(self) -> bool:
        """Return whether the number of the process is still its own."""
        return not self._gone

    def reap(self) -> None:
        """Let the kernel forget it; call after `post`.  From now on no signal is sent."""
        self._gone = True
        self._process.poll()

    def _watch(self) -> None:
        end = None
        try:
            end = persistently(lambda: wait_unreaped(self.pid))
            self._gone = end.reaped
            if self._asked or end.code != 0:
                sweep(self.pid)
            self._before_post()
        finally:  # also after a failure: without this the run would wait for ever
            self._gone = self._gone or end is None
            persistently(lambda: self._post(end.code if end else None, end.memory_kill if end else None))


def identity_of(pid: int) -> Identity:
    """Return the identity of a process; one that no process has if it is over already."""
    try:
        return identity(pid)
    except ProcessLookupError:  # over already
        return Identity(pid=pid, started=-1.0, boot="?")

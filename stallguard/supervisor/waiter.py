"""The parent of a detached training: a program of its own that writes the training's exit code to a file.

Only a parent can read an exit code on Linux, and stallguard can die before the training does.  The waiter is small
(9 to 11 MB resident) and does nothing else, so it outlives stallguard.  It starts the training in a session of its own,
passes signals on, waits, writes the code and ends.  It holds a lock on the file until then: a reader who
gets the lock either finds the code or knows that the waiter was killed.

The disk can be full or read-only when the training begins.  Then the file is made as soon as there is room, also after
the training's end.

supervisor.adopted starts it as `python -I -S waiter.py FILE SOCKET PIPE`; it imports the standard library only.
From the descriptor SOCKET it reads the working directory, the number of arguments, the arguments and the environment,
each ended by a NUL; it answers with the training's pid and, if that cannot be started, what failed and the errno.  The
code goes to PIPE as well: a stallguard that lives needs no file.
"""

import _signal as signal  # signal itself loads enum: 1 MB of the 10 that are allowed
import fcntl
import os
import sys
import time

EVERY = 1.0  # seconds between two attempts to make the file
LONGEST = 3600  # of them after the training's end: no stallguard comes for the code after that
TO_ALL = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCONT)  # of the group
PASSED_ON = (
    *TO_ALL, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU,
    *range(getattr(signal, "SIGRTMIN", 1), getattr(signal, "SIGRTMAX", 0) + 1),  # macOS has none
)  # fmt: skip


def main(path: str, connection: int, pipe: int) -> None:
    """Start what `connection` says, wait for its end and write its exit code to `path`, as subprocess has it."""
    kept = _made(path)
    os.set_inheritable(connection, False)
    os.set_inheritable(pipe, False)
    with open(connection, "rb", closefd=False) as file:
        cwd, count, *words = file.read().split(b"\0")[:-1]
    argv, env = words[: int(count)], dict(word.split(b"=", 1) for word in words[int(count) :])
    unblocked: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON))
    pid = os.fork()
    if pid == 0:
        _become(argv, env, cwd, connection, unblocked)
    os.close(connection)

    def pass_on(number: int, _frame: object) -> None:
        try:  # noqa: SIM105 - contextlib costs memory
            (os.killpg if number in TO_ALL else os.kill)(pid, number)
        except (ProcessLookupError, PermissionError):  # it has ended; macOS: a group of zombies
            pass

    making = False

    def make_again(_number: int, _frame: object) -> None:
        nonlocal kept, making
        if making:  # a disk that takes longer than EVERY: a second lock would wait for the first one for ever
            return
        making = True
        kept = _made(path) if kept < 0 else kept
        making = False
        if kept >= 0:
            signal.setitimer(signal.ITIMER_REAL, 0)

    for number in PASSED_ON:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    if kept < 0:
        signal.signal(signal.SIGALRM, make_again)
        signal.setitimer(signal.ITIMER_REAL, EVERY, EVERY)
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # the number can belong to another process from now on
    code = b"%d\n" % os.waitstatus_to_exitcode(status)
    left = LONGEST
    try:
        os.write(pipe, code)
        left = 1
    except OSError:  # the stallguard that started this has been killed
        pass
    while kept < 0 and left:
        kept, left = _made(path), left - 1
        if kept < 0 and left:
            time.sleep(EVERY)
    if kept >= 0:
        os.pwrite(kept, code, 0)
        _keep(kept)


def _keep(kept: int) -> None:
    """Have the code on the disk, as probe.disk_order, which a program without stallguard's path cannot import."""
    if sys.platform == "darwin":
        try:
            fcntl.fcntl(kept, fcntl.F_FULLFSYNC)
        except OSError:  # a file system can refuse it
            pass
        else:
            return
    os.fsync(kept)


def _made(path: str) -> int:
    """Return a descriptor of the file, with room for a code and locked; -1 if there is no room for it now."""
    try:
        kept = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return -1
    try:  # noqa: SIM105 - contextlib costs memory
        fcntl.flock(kept, fcntl.LOCK_EX)
    except OSError:  # a file system without locks: a reader gives us a moment
        pass
    try:
        os.pwrite(kept, b" " * 8, 0)
        os.fsync(kept)
    except OSError:
        os.unlink(path)  # noqa: PTH108 - pathlib costs memory
        os.close(kept)
        return -1
    return kept


def _become(argv: list[bytes], env: dict[bytes, bytes], cwd: bytes, connection: int, unblocked: set[int]) -> None:
    """Turn the forked process into the training; say the errno if that fails."""
    try:
        os.write(connection, b"%d\n" % os.getpid())
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them; the training must not
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
        failed = b"cwd"
        os.chdir(cwd)
        failed = b"program"
        os.execvpe(argv[0], argv, env)  # noqa: S606 - what the user wants to run
    except OSError as error:
        os.write(connection, b"%s %d\n" % (failed, error.errno or 0))
    finally:
        os._exit(127)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

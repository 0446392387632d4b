"""Carries the output of a training whose stallguard was killed: by kill -9, or by the system for its memory.

The training writes into a pipe, or a terminal of ours.  If nothing had the other end open, its next `print` would be a
BrokenPipeError, or a SIGPIPE, which ends the training.  So a shell has the same end open.  It reads nothing while
stallguard lives: it waits for a line on a pipe whose other end stallguard alone has.  If that pipe ends without one,
stallguard was killed, and the shell runs this file: it carries what comes to the user's descriptor and to output.log
until the last process that can write has closed its end.  If this file cannot be run any more (stallguard was upgraded,
memory is short, the run's directory is gone), `cat` carries it to the user alone, and drops it if no process reads it.

A shell, because it waits with 0.2 MB of its own, an interpreter with 9.  One for each line: its standard input is the
line, its standard output the user's, and its standard error is the pipe, because a shell can only name the descriptors
0 to 9.  It is in a session of its own, as the training is.

This file is run as `python -I -S standby.py FILE BYTES` and imports the standard library only.
"""

import contextlib
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK = 1 << 16
PATIENCE = 1.0  # seconds that a shell has to end
SHELL = """
trap '' HUP INT QUIT TERM TSTP TTIN TTOU PIPE USR1 USR2 ALRM VTALRM PROF XCPU
read -r _ <&2 && exit 0
exec 2>/dev/null
"$@" || cat || exec cat >/dev/null
"""


class Standby:
    """The shell of one line."""

    def __init__(self, ours: int, target: int, log: "Path", most: int, trouble: "Callable[[str], None]") -> None:
        """Start it.  `ours`: our end of the line; `target`: the user's descriptor; `most`: bytes of `log`.

        `trouble` is called if the system refuses.
        """
        import subprocess
        import threading

        self._shell, self._ending = None, threading.Lock()
        asked, self._asking = os.pipe()
        try:
            command = [sys.executable, "-I", "-S", __file__, str(log), str(most)]
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", SHELL, "stallguard-output", *command],
                stdin=ours, stdout=target, stderr=asked, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(self._asking)
            trouble(
                f"no second process holds the output ({error.strerror}): if stallguard is killed, the training ends at "
                "its next line"
            )
        finally:
            os.close(asked)

    def end(self) -> None:
        """End it, from any thread: what still writes to the line must get the error that it would get without us."""
        with self._ending:
            shell, self._shell = self._shell, None
        if shell is None:
            return
        with contextlib.suppress(OSError):  # it was killed
            os.write(self._asking, b"end\n")
        os.close(self._asking)
        try:
            shell.wait(PATIENCE)
        except Exception:  # noqa: BLE001 - TimeoutExpired: it was stopped
            shell.kill()
            shell.wait()


def carry(path: str, most: int) -> None:
    """Carry standard input to standard output, as long as that takes it, and to the end of a file of `most` bytes."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    is_taken = True
    while True:
        try:
            data = os.read(0, CHUNK)
        except OSError:  # EIO: a terminal without another end
            return
        if not data:
            return
        with contextlib.suppress(OSError):  # a full disk makes a hole
            if os.fstat(log).st_size < most:
                os.write(log, data)
        rest = memoryview(data)
        while rest and is_taken:
            try:
                rest = rest[os.write(1, rest) :]
            except BlockingIOError:  # another process made it non-blocking
                select.select([], [1], [])
            except OSError:  # its reader is gone, or its disk full
                is_taken = False


if __name__ == "__main__":
    carry(sys.argv[1], int(sys.argv[2]))

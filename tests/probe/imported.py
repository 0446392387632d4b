"""Runs scripts in a process that has imported their framework already: 0.6 s of processor time instead of 3.7 s.

For tests of what a training keeps and does, not of how the probe gets into it: here it finds the framework imported,
while the tests of the frameworks, of random numbers and of whole runs start an interpreter each time.  Only on Linux:
what macOS loads for a framework does not survive a fork, so the same tests start an interpreter there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.probe.receiver import Receiver

SERVER = Path(__file__).parent / "children" / "fork_server.py"
# tests/conftest.py finds with it what a session leaves behind.
SESSION = "STALLGUARD_TEST_SESSION"
SERVERS: set[psutil.Process] = set()  # they live as long as the session: no test leaves them behind


class ForkServer:
    """An interpreter that has imported a backend and Keras.  It runs one script at a time."""

    def __init__(self, interpreter: str, backend: str, folder: str) -> None:
        """The libraries are imported meanwhile.  `folder`: for what the compilers of torch and JAX keep."""
        own = {
            name: value for name, value in os.environ.items() if name == SESSION or not name.startswith("STALLGUARD_")
        }
        chosen = {
            "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "TORCHINDUCTOR_CACHE_DIR": folder,
            # A function that one fork has compiled takes the next one a twentieth of the time.
            "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }  # fmt: skip
        self._process = subprocess.Popen(
            [interpreter, str(SERVER), backend, "keras"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={**own, **chosen},
        )  # fmt: skip
        SERVERS.add(psutil.Process(self._process.pid))
        self._answers = b""

    def fork(
        self, argv: Sequence[str], folder: Path, environment: dict[str, str], output: Path, *, guard: bool = False
    ) -> Fork:
        """Run a script in a fork; what it prints goes into files whose names begin with `output`.

        `guard`: `argv` is a whole command, a `stallguard run` whose trainings are forks (tests/guarded/runs.py).
        """
        out, err = (output.with_suffix(suffix) for suffix in (".out", ".err"))
        for file in (out, err):
            file.touch()
        job = {"argv": list(argv), "environment": environment, "folder": str(folder), "guard": guard}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({**job, "out": str(out), "err": str(err)}).encode() + b"\n")
        self._process.stdin.flush()
        pid = self.answer(120)
        assert pid is not None, "the libraries were not imported in time"
        return Fork(self, pid, out, err)

    def answer(self, seconds: float) -> int | None:
        """Return the next number that the server says, None if none comes in time."""
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._answers:
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            more = os.read(pipe, 100)
            assert more, "the server of forks has ended"
            self._answers += more
        number, _, self._answers = self._answers.partition(b"\n")
        return int(number)

    def close(self) -> None:
        """End it."""
        self._process.communicate()


class Fork:
    """What a test needs of a `subprocess.Popen` whose output is text."""

    def __init__(self, server: ForkServer, pid: int, out: Path, err: Path) -> None:
        """It runs already."""
        self.pid, self.returncode = pid, None
        self._server, self._files = server, (out, err)

    def poll(self, seconds: float = 0.0) -> int | None:
        """Return its exit code, None while it runs."""
        if self.returncode is None:
            self.returncode = self._server.answer(seconds)
        return self.returncode

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Wait for its end and return what it printed.  Raises TimeoutError."""
        out, err = self.printed(timeout)
        return out.decode(), err.decode()

    def printed(self, timeout: float) -> tuple[bytes, bytes]:
        """Wait for its end and return what it printed, as bytes.  Raises TimeoutError."""
        if self.poll(timeout) is None:
            raise TimeoutError
        out, err = (file.read_bytes() for file in self._files)
        return out, err

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ForkServers:
    """The servers of a session, by interpreter and backend."""

    def __init__(self) -> None:
        """None is started yet."""
        self._servers: dict[tuple[str, str], ForkServer] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="sg-forks-")

    def of(self, interpreter: str, backend: str) -> ForkServer:
        """Return the server that has imported this backend of Keras."""
        key = interpreter, backend
        if key not in self._servers:
            self._servers[key] = ForkServer(*key, self._folder.name)
        return self._servers[key]

    def close(self) -> None:
        """End them all."""
        for server in self._servers.values():
            server.close()
        self._folder.cleanup()


class ForkReceiver(Receiver):
    """A receiver whose `start` runs a script of Keras in a fork."""

    def __init__(self, servers: ForkServers) -> None:
        """Nothing is started yet."""
        self._servers, self._forks = servers, 0

    def start(self, command, cwd=None, **extra):
        """Start a script under the probe."""
        interpreter, *argv = command
        if sys.platform != "linux":
            return super().start(command, cwd, **extra)
        self._forks += 1
        child = self._servers.of(interpreter, extra.get("KERAS_BACKEND", "tensorflow")).fork(
            argv, cwd or self.folder, self.environment(**extra), self.folder / f"fork{self._forks}"
        )
        self.children.append(child)
        return child

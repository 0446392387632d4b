"""What slows a training from outside: a server, a group of processes with a limit, other processes.

Each is a context that yields how a command is to be started in it.  What cannot be made here raises `Unavailable`;
that training is not run then, and never counted as named rightly.
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

LATENCY = 0.1  # seconds until the server answers
QUOTA = 0.2  # of a core
MEMORY = 900_000_000  # bytes: TensorFlow takes 600 MB of them
ENDING = 10.0  # seconds until a process that stays in a group is killed
PERIOD = 100_000  # microseconds, the kernel's default
GROUPS = Path("/sys/fs/cgroup")
NAME = "stallguard-bench"
_NUMBER = itertools.count()  # of the groups of this process


class Unavailable(Exception):
    """It cannot be made on this machine; the text says why."""


class Surroundings(NamedTuple):
    """How the run is started: words before the command, arguments after the program's own."""

    before: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    copies: int = 1  # runs at once
    trains: Callable[[], None] = lambda: None  # called when the training has begun


class _Batches(http.server.BaseHTTPRequestHandler):
    """Gives random batches, late."""

    def do_GET(self) -> None:
        time.sleep(LATENCY)
        body = np.random.default_rng(0).random((32, 17), dtype=np.float32).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing."""


@contextlib.contextmanager
def server() -> Iterator[Surroundings]:
    """Serve batches on the loopback interface."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Batches) as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        try:
            yield Surroundings(arguments=(f"http://127.0.0.1:{serving.server_port}",))
        finally:
            serving.shutdown()
            thread.join()


@contextlib.contextmanager
def group(controller: str, limits: dict[str, str], unified: dict[str, str]) -> Iterator[Surroundings]:
    """Make a control group; `limits` are the files of version 1 and what they get, `unified` those of version 2."""
    is_unified = (GROUPS / "cgroup.controllers").exists()
    place = (GROUPS if is_unified else GROUPS / controller) / f"{NAME}-{os.getpid()}-{next(_NUMBER)}"
    try:
        place.mkdir()
    except OSError as error:
        raise Unavailable(f"no control group can be made here: {error.strerror}") from error
    try:
        try:
            for name, value in (unified if is_unified else limits).items():
                (place / name).write_text(value)
        except OSError as error:
            raise Unavailable(f"this control group takes no limit: {error.strerror}") from error
        yield Surroundings(before=("/bin/sh", "-c", f'echo $$ > {place}/cgroup.procs && exec "$@"', "sh"))
    finally:
        _empty(place / "cgroup.procs")
        place.rmdir()


def _empty(members: Path) -> None:
    """Wait for the processes of a group that a run has left behind; end them if they stay."""
    end = time.monotonic() + ENDING
    while (left := members.read_text().split()) and time.monotonic() < end + 5:
        time.sleep(0.1)
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def quota() -> contextlib.AbstractContextManager[Surroundings]:
    """Give a run a part of a core."""
    most = str(int(QUOTA * PERIOD))
    return group("cpu", {"cpu.cfs_quota_us": most}, {"cpu.max": f"{most} {PERIOD}"})


def little_memory() -> contextlib.AbstractContextManager[Surroundings]:
    """Give a run less memory than it uses."""
    return group("memory", {"memory.limit_in_bytes": str(MEMORY)}, {"memory.max": str(MEMORY)})


@contextlib.contextmanager
def busy_processes() -> Iterator[Surroundings]:
    """Take every core for other processes, from when the training begins."""
    burn = [sys.executable, "-c", "while True: pass"]
    burning: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        burning.extend(subprocess.Popen(burn) for _ in range(os.cpu_count() or 1))

    try:
        yield Surroundings(trains=start)
    finally:
        for one in burning:
            one.kill()
            one.wait()


AROUND: dict[str, Callable[[], contextlib.AbstractContextManager[Surroundings]]] = {
    "": lambda: contextlib.nullcontext(Surroundings()),
    "server": server,
    "quota": quota,
    "little memory": little_memory,
    "busy processes": busy_processes,
    "the same again": lambda: contextlib.nullcontext(Surroundings(copies=2)),
}

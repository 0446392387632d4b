"""What slows a training from outside: a server, a group of processes with a limit, other processes.

Each is a context that yields how a command is to be started in it.  What cannot be made here raises `Unavailable`;
that training is not run then, and never counted as named rightly.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from harness.groups import group, inside

LATENCY = 0.1  # seconds until the server answers
QUOTA = 0.2  # of a core
MEMORY = 900_000_000  # bytes: TensorFlow takes 600 MB of them


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
def limited(*, memory: int = 0, cores: float = 0.0) -> Iterator[Surroundings]:
    """Give a run a part of a core, or less memory than it uses."""
    with group(memory=memory, cores=cores) as place:
        yield Surroundings(before=inside(place))


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
    "quota": lambda: limited(cores=QUOTA),
    "little memory": lambda: limited(memory=MEMORY),
    "busy processes": busy_processes,
    "the same again": lambda: contextlib.nullcontext(Surroundings(copies=2)),
}

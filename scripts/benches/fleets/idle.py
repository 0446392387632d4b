"""What a worker of the product costs that waits for jobs: processor time, wake-ups, memory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from fleets import published, s3_server
from fleets.machines import wait_for
from harness.results import Goal, against, number
from stallguard.fleet.store.opening import open_store

SHARE = 0.5  # % of a core
MEMORY = {"file": 55.0, "s3": 75.0}  # MB
SETTLES = 15.0  # s after it is connected


def idle(kind: str, seconds: float, say: Callable[[str], None]) -> list[Goal]:
    """Start a scheduler and a worker on this machine, watch the worker, and return what must hold.

    `kind` of the store: file or s3.
    """
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sgi-")))
        if kind == "s3":
            stack.enter_context(s3_server.bucket("127.0.0.1"))
        (place / "store").mkdir()
        return _watch(kind, place, f"file://{place / 'store'}" if kind == "file" else s3_server.URL, seconds, say)


def _watch(kind: str, place: Path, url: str, seconds: float, say: Callable[[str], None]) -> list[Goal]:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{chosen.getsockname()[1]}"
    own = {"STALLGUARD_FLEET": str(place / "fleet.toml"), "HOME": str(place)}
    verb = [sys.executable, "-m", "stallguard", "fleet"]
    subprocess.run(
        [*verb, "init", "--name", "idle", "--store", url, "--scheduler", address],
        env={**os.environ, **own}, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started = []
    try:
        for words in (("scheduler", "--listen", address), ("worker", "--name", "idle")):
            home = {"STALLGUARD_HOME": str(place / words[0])}
            started.append(subprocess.Popen([*verb, *words], env={**os.environ, **own, **home}, cwd=place))
        store = open_store(url)
        wait_for("the worker is ready", lambda: published.record(store, "workers/idle").get("state") == "ready", 120)
        time.sleep(SETTLES)
        worker, scheduler = (psutil.Process(one.pid) for one in reversed(started))
        shares = [_watched(one, seconds) for one in (worker, scheduler)]
        memory = worker.memory_full_info().uss / 1e6
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    (share, wakes), (other, others) = shares
    say(f"{kind}: a scheduler of one machine takes {other:.2f} % of a core, with {others:.0f} wake-ups a second")
    goals = [
        Goal(f"idle worker, store {kind}, % of a core", share, SHARE),
        Goal(f"idle worker, store {kind}, MB", memory, MEMORY[kind]),
    ]
    print(against("one worker", goals, ("wake-ups a second", "", number(wakes), "")))
    return goals


def _watched(process: psutil.Process, seconds: float) -> tuple[float, float]:
    """Return the share of a core in % and the wake-ups a second of a process with its threads."""
    began, before, switches = time.monotonic(), process.cpu_times(), process.num_ctx_switches().voluntary
    time.sleep(seconds)
    after, passed = process.cpu_times(), time.monotonic() - began
    used = after.user + after.system - before.user - before.system
    return 100 * used / passed, (process.num_ctx_switches().voluntary - switches) / passed

"""Where there is no memory, or no thread, for stallguard itself: a clear error, or the training's own end; no hang."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import SPOILED, Guarded

SCRIPT = """
from pathlib import Path
Path("began").touch()
print("trained")
raise SystemExit(7)
"""
TWICE = """
import time
calls = []
def failing(*args):
    calls.append(args)
    if 1 < len(calls) < 4:
        raise MemoryError
    return whole(*args)
spoil(failing)
"""
NO_THREAD = """
of = sys.argv.pop(1)
def refused(thread):
    if thread.name == of:
        raise RuntimeError("can't start new thread")
    whole(thread)
spoil(refused)
"""
STALLING = """
import threading, time, stallguard
end = time.monotonic() + 1.2
while time.monotonic() < end:
    stallguard.beat()
    sum(range(100_000))
lock = threading.Lock()
lock.acquire()
lock.acquire()
"""


def run(
    place: Path,
    *program: str,
    script: str = SCRIPT,
    options: tuple[str, ...] = (),
    limit: Callable[[], None] | None = None,
) -> Guarded:
    """Run a script in `place` by `python PROGRAM run`, with `limit` set on stallguard itself."""
    (place / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, *program, "run", "--python", sys.executable, "--max-restarts", "0", *options, "script.py"],
        env={**os.environ, "STALLGUARD_HOME": str(place / "home")}, cwd=place, capture_output=True, check=False,
        timeout=120, stdin=subprocess.DEVNULL, preexec_fn=limit,
    )  # fmt: skip
    latest = place / "home/runs/latest"
    return Guarded(done.returncode, done.stdout, done.stderr.decode(), latest.resolve() if latest.exists() else None)


def addresses(megabytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6,) * 2)


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS does not hold a process to RLIMIT_AS")
@pytest.mark.parametrize("megabytes", [80, 400])
def test_too_small_an_address_space_is_refused_before_anything_begins(tmp_path: Path, megabytes: int) -> None:
    done = run(tmp_path, "-m", "stallguard", limit=addresses(megabytes))

    assert done.code == 126
    assert f"the address space is limited to {megabytes} MB" in done.err
    assert "ulimit -v" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]


def test_an_address_space_that_is_just_large_enough_will_do(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "stallguard", limit=addresses(1001))

    assert (done.code, done.out) == (7, b"trained\n"), done.err


@pytest.mark.parametrize(
    "where", ["stallguard.supervisor.child/wait_unreaped", "stallguard.supervisor.context/Mailbox/next"]
)
def test_memory_that_is_short_for_a_moment_costs_no_end_of_a_training(tmp_path: Path, where: str) -> None:
    spoiled = TWICE if where.endswith("next") else TWICE.replace("1 <", "0 <")

    done = run(tmp_path, "-c", SPOILED + spoiled, where)

    assert (done.code, done.out) == (7, b"trained\n"), done.err


def test_a_training_that_no_thread_could_watch_is_not_started(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", SPOILED + NO_THREAD, "stallguard.worker/Worker/start", "child")

    assert done.code == 125
    assert "the system grants stallguard no thread to watch it (can't start new thread)" in done.err
    assert "Traceback" not in done.err
    assert not (tmp_path / "began").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs the wait sites of threads, which only Linux shows")
def test_a_stall_is_ended_though_no_thread_gathers_its_evidence(tmp_path: Path) -> None:
    quick = [
        word for row in ("step", "unclassified") for prior in ("", "prior_") for kind in ("deadlock", "external")
        for word in ("--set", f"detector.rows.{row}.{prior}{kind}=4s")
    ]  # fmt: skip
    stop = ("--set", "detector.act_after=1s", "--on-stall", "stop", *quick)

    done = run(
        tmp_path, "-c", SPOILED + NO_THREAD, "stallguard.worker/Worker/start", "collect", script=STALLING, options=stop
    )

    assert done.code == 124, done.err
    assert "the evidence is incomplete" in done.err

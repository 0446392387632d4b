"""An error of our own costs the guard at worst, never the training, its output or its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

from .runs import SPOILED, Guarded

# The second word is the name of an event: the function fails only for events of that type.
BREAKS = """
only = sys.argv.pop(1)
def broken(*args, **named):
    if not only or type(args[1]).__name__ == only:
        raise RuntimeError("a mistake of ours")
    return whole(*args, **named)
spoil(broken)
"""
SCRIPT = """
import time
import stallguard
for number in range(15):
    stallguard.beat()
    print("step", number, flush=True)
    time.sleep(0.1)  # the pace of a training: three readings of the sensors come meanwhile
raise SystemExit(7)
"""
ADVANCE, TOLD = "stallguard.core.fold/advance", "stallguard itself failed"


def command(place: Path, where: str, only: str) -> list[str]:
    script = place / "script.py"
    script.write_text(SCRIPT)
    return [sys.executable, "-c", SPOILED + BREAKS, where, only, "run", "--python", sys.executable,
            "--max-restarts", "0", str(script)]  # fmt: skip


def broken(place: Path, where: str, only: str = "") -> Guarded:
    done = subprocess.run(
        command(place, where, only), env={**os.environ, "STALLGUARD_HOME": str(place)}, capture_output=True,
        check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Guarded(done.returncode, done.stdout, done.stderr.decode(), (place / "runs" / "latest").resolve())


@pytest.mark.parametrize(
    ("where", "only"),
    [
        (ADVANCE, "Sampled"),
        (ADVANCE, "Launched"),
        (ADVANCE, "Exited"),
        ("stallguard.core.fold/next_wake", ""),
        ("stallguard.supervisor.launcher/Launcher/look", ""),
        ("stallguard.supervisor.guard/Notifications/open", ""),
        ("stallguard.storage.journal/Journal", ""),
        ("stallguard.storage.journal/Journal/write", ""),
        ("stallguard.host.clock/SleepWatch/tick", ""),
        ("stallguard.sensors.sensor_registry/sensors", ""),
        ("stallguard.supervisor.heartbeats/heartbeat", ""),
        ("stallguard.supervisor.heartbeats/Track", ""),
        ("stallguard.supervisor.heartbeats/Track/ended", ""),
        ("stallguard.core.trainings/observe", "Heartbeat"),
        ("stallguard.supervisor.child/sweep", ""),
        ("stallguard.supervisor.launcher/Launcher/settle", ""),
        ("stallguard.host/system/MemoryKill/killed", ""),
        ("stallguard.supervisor.output/Matching/feed", ""),
        ("stallguard.storage.retention/prune", ""),
        ("stallguard.storage.learned_store/save", ""),
        ("stallguard.supervisor.control/Control/close", ""),
        ("stallguard.supervisor.loop/Loop", ""),
        ("stallguard.core.fold/begin", ""),
    ],
)
def test_the_training_goes_its_way_to_its_own_end(tmp_path: Path, where: str, only: str) -> None:
    run = broken(tmp_path, where, only)

    assert (run.code, run.out.splitlines()) == (7, [f"step {n}".encode() for n in range(15)]), run.err
    assert "Traceback" not in run.err


def test_what_failed_is_reported_and_kept_for_a_report(tmp_path: Path) -> None:
    run = broken(tmp_path, ADVANCE, "Sampled")

    assert f"{TOLD} at judging what happened (RuntimeError: a mistake of ours)" in run.err
    assert f"{TOLD} (RuntimeError: a mistake of ours): the training goes on unguarded" in run.err
    assert run.err.count(f"{TOLD} at") == 1, "what fails again is not told again"
    assert "in broken" in run.announced("stallguard.failed")[0]["trace"]
    assert run.outcome()["exit_code"] == 7


def test_a_few_events_that_are_not_understood_leave_the_guard_in_place(tmp_path: Path) -> None:
    run = broken(tmp_path, ADVANCE, "ProbeConnected")

    assert run.err.count(TOLD) == 1
    assert run.outcome()["batches"] == 15


def test_an_order_to_end_is_carried_out_all_the_same(tmp_path: Path) -> None:
    environment = {**os.environ, "STALLGUARD_HOME": str(tmp_path)}
    with subprocess.Popen(
        command(tmp_path, ADVANCE, "UserCommand"), env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"step 0\n"
        run.send_signal(signal.SIGTERM)
        run.stdout.read()

        assert run.wait(20) == 128 + signal.SIGTERM


@pytest.mark.parametrize("verb", ["restart --from-scratch", "debug mute"])
def test_an_unguarded_run_refuses_what_it_cannot_do(tmp_path: Path, verb: str) -> None:
    environment = {**os.environ, "STALLGUARD_HOME": str(tmp_path)}
    words = command(tmp_path, ADVANCE, "Launched")
    (tmp_path / "script.py").write_text(SCRIPT.replace("15", "600"))
    with subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        assert run.stderr is not None
        while b"goes on unguarded" not in run.stderr.readline():
            pass
        asking = [sys.executable, "-m", "stallguard", *verb.split()]
        asked = subprocess.run(asking, env=environment, capture_output=True, text=True, check=False)
        run.terminate()
        run.communicate(timeout=30)

    assert (asked.returncode, run.returncode) == (1, 128 + signal.SIGTERM)
    assert "goes on unguarded, and can only be stopped" in asked.stderr


def test_a_start_that_fails_for_a_reason_of_ours_ends_the_run_with_its_code(tmp_path: Path) -> None:
    run = broken(tmp_path, "stallguard.supervisor.launcher/child_environment")

    assert (run.code, run.out) == (125, b"")
    assert "the training cannot be started" in run.err
    assert run.err.count("a mistake of ours") == 1
    assert not list(RunDir(tmp_path).path.glob("stallguard-*"))


@pytest.mark.parametrize("verb", ["stop", "interrupt"])
def test_a_training_whose_guard_cannot_be_loaded_can_be_ended(tmp_path: Path, verb: str) -> None:
    number = {"stop": signal.SIGTERM, "interrupt": signal.SIGINT}[verb]
    with subprocess.Popen(
        command(tmp_path, "stallguard.supervisor.loop/Loop", ""),
        env={**os.environ, "STALLGUARD_HOME": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as run:  # fmt: skip
        assert run.stdout is not None
        assert run.stdout.readline() == b"step 0\n"
        run.send_signal(number)
        _, announced = run.communicate(timeout=30)

    assert run.returncode == 128 + number
    assert b"goes on unguarded" in announced
    assert run_files.state(RunDir((tmp_path / "runs" / "latest").resolve())) != "lost"

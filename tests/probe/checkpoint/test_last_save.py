"""Ended from outside under a real `stallguard run`: the last save is made, is left its time, and is gone on from."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from stallguard.core.events import Heartbeat, Launched, ProbeNote
from stallguard.storage import journal
from tests.guarded.runs import SCRIPTS

pytestmark = pytest.mark.live
EVENING = str(SCRIPTS / "evening.py")
SAVES_SLOWLY = """
import signal, sys, time
import stallguard

def save(*_):
    with open("last.ckpt", "wb") as file:
        for _ in range(60):
            file.write(bytes(100_000))
            file.flush()
            time.sleep(0.1)
    print("saved", flush=True)
    sys.exit(5)

signal.signal(signal.SIGTERM, save)
while True:
    stallguard.beat()
    time.sleep(0.05)
"""


@contextlib.contextmanager
def started(folder, *command):
    """Yield a guarded run of `command` once it has trained ten batches."""
    words = [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, *command]
    with subprocess.Popen(
        words, env={**os.environ, "STALLGUARD_HOME": str(folder / "home"), "PAUSE": "0.05"}, cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as child:  # fmt: skip
        until(lambda: batches(folder / "home" / "runs" / "latest" / "journal.jsonl") >= 10)
        yield child


def until(true):
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def batches(path):
    heartbeat = [event.beats for event in journal.events(path) if isinstance(event, Heartbeat)] if path.exists() else []
    return max(heartbeat, default=0)


def test_a_save_that_outlasts_the_grace_is_left_to_end(tmp_path):
    (tmp_path / "script.py").write_text(SAVES_SLOWLY)
    with started(tmp_path, "--grace", "3s", "script.py") as child:
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=40)
    assert "saved" in out
    assert (tmp_path / "last.ckpt").stat().st_size == 6_000_000


@pytest.fixture(scope="module")
def undisturbed():
    """What the script says when nobody interferes."""
    quick = {**os.environ, "PAUSE": "0"}
    done = subprocess.run([sys.executable, EVENING], env=quick, capture_output=True, check=True, text=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.tf
def test_a_training_that_a_user_kills_goes_on_by_itself_and_comes_to_the_same(tmp_path, undisturbed):
    with started(tmp_path, "--checkpoint-every", "0.3s", EVENING) as child:
        for training in psutil.Process(child.pid).children():
            training.kill()
        out, _ = child.communicate(timeout=180)  # TensorFlow is imported again
    assert child.returncode == 0
    assert out.splitlines()[-1] == undisturbed
    path = tmp_path / "home" / "runs" / "latest" / "journal.jsonl"
    assert [event.attempt for event in journal.events(path) if isinstance(event, Launched)] == [1, 2]
    assert any("checkpoint (epoch 1," in event.text for event in journal.events(path) if isinstance(event, ProbeNote))


@pytest.mark.tf
def test_sigterm_makes_a_last_checkpoint_and_the_next_run_goes_on_there(guard_keras, tmp_path, undisturbed):
    with started(tmp_path, EVENING) as child:
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=40)
    assert child.returncode == 128 + signal.SIGTERM
    assert not list((tmp_path / "home" / "runs" / "latest" / "checkpoints").glob("*/fit-*/g2")), "one save, the last"

    resumed = guard_keras(tmp_path / "home", "--resume", "last", EVENING, env={"PAUSE": "0"}, cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    assert resumed.out.decode().splitlines()[-1] == undisturbed
    said = [
        re.search(r"checkpoint \(epoch 1, batch (\d+)\)", fact["text"]) for fact in resumed.announced("attempt.resumed")
    ]
    assert [match for match in said if match and int(match[1]) >= 10], resumed.err

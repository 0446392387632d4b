"""`stallguard watch` makes a run of a process that it did not start: seen, judged, announced, never touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.launch import earlier_run
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir
from tests import command_line

LONG = 60.0  # seconds; only a broken test waits that long
SECRET = "hunter2-s3cr3t-value"


@pytest.fixture
def process(tmp_path):
    """A script that prints what it reads."""
    (tmp_path / "train.py").write_text("import sys\nfor line in sys.stdin: print(line, end='', flush=True)\n")
    with (tmp_path / "train.log").open("wb") as file:
        made = subprocess.Popen(
            [sys.executable, "train.py"], stdin=subprocess.PIPE, stdout=file, stderr=file, cwd=tmp_path,
            env={**os.environ, "API_TOKEN": SECRET},
        )  # fmt: skip
    yield made
    with made:
        made.send_signal(signal.SIGCONT)
        made.kill()


@pytest.fixture
def watch(process, tmp_path):
    """The command, which watches already, in a home of its own."""
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(command_line.ROOT)}
    words = ["watch", str(process.pid), "--set", "detector.patience=0.25", "--set", "notify.desktop=off"]
    made = subprocess.Popen(
        [sys.executable, "-m", "stallguard", *words], env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    until(lambda: "watch.limits" in journal(tmp_path))
    yield made
    with made:
        made.kill()
    paths.remove_sockets(Path(run_files.asked(run_of(tmp_path)).control).parent)  # it was killed


def until(is_true, what="it"):
    end = time.monotonic() + LONG
    while not is_true():
        assert time.monotonic() < end, f"{what} was awaited for {LONG:g} s"
        time.sleep(0.05)


def run_of(home):
    return next((RunDir(path) for path in (home / "runs").glob("2*")), None)


def journal(home):
    run = run_of(home)
    return run.journal.read_text() if run and run.journal.exists() else ""


def say(home, *words):
    env = {**os.environ, "STALLGUARD_HOME": str(home), "HOME": str(home)}
    return command_line.stallguard(*words, env=env, cwd=home)


@pytest.mark.waits
def test_its_end_ends_the_watch_and_nothing_is_claimed_that_was_not_seen(watch, process, tmp_path):
    process.stdin.write(b"epoch 3\n")
    process.stdin.flush()
    until(lambda: "epoch 3" in say(tmp_path, "status").stdout)
    live = json.loads(say(tmp_path, "status", "--json").stdout)
    assert live["pid"] == process.pid
    assert "batches" not in live
    assert live["progress"] is None
    process.stdin.close()
    _, said = watch.communicate(timeout=LONG)

    assert watch.returncode == 0
    assert "its exit code is not known" in said
    end = json.loads(say(tmp_path, "status", "--json").stdout)
    assert (end["state"], end["outcome"]["batches"]) == ("ended", None)
    shown = say(tmp_path, "status").stdout
    assert "exit code is not known" in shown
    assert "batches" not in shown
    assert "epoch 3" in say(tmp_path, "logs", "--output").stdout
    assert "exit code 0" not in say(tmp_path, "report").stdout


@pytest.mark.waits
def test_who_ends_the_watch_leaves_the_process_alone(watch, process, tmp_path):
    assert say(tmp_path, "restart", "--from-scratch").returncode == 1
    watch.send_signal(signal.SIGINT)
    watch.communicate(timeout=LONG)

    assert watch.returncode == 0
    assert process.poll() is None
    assert run_files.outcome(run_of(tmp_path)).why == "the watch ended, and the process goes on"


@pytest.mark.waits
def test_no_verb_ends_the_process_after_stallguard_was_killed(watch, process, tmp_path):
    watch.kill()
    watch.wait()
    for place in Path(os.environ["TMPDIR"]).glob("stallguard-*"):
        shutil.rmtree(place)  # of its sockets, which the process that was killed did not remove

    assert earlier_run.find_orphan(run_of(tmp_path)) is None
    assert say(tmp_path, "stop").returncode == 3
    assert process.poll() is None


@pytest.mark.waits
def test_a_stopped_process_is_announced_with_evidence_without_its_secrets(watch, process, tmp_path):
    process.send_signal(signal.SIGSTOP)
    until(lambda: '"evidence.collected"' in journal(tmp_path), "the evidence")
    kept = run_of(tmp_path).incident(1)

    assert "the process was stopped (SIGSTOP)" in journal(tmp_path)
    assert (kept / "manifest.json").exists()
    assert not [path for path in kept.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert process.poll() is None
    assert say(tmp_path, "status").returncode == 1

"""A watch over a process that stallguard did not start: it gets a run directory, and is never ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from stallguard import config
from stallguard.core.events import UserCommand
from stallguard.core.limits import NEVER
from stallguard.errors import GAVE_UP
from stallguard.launch import request
from stallguard.probe.settings import VARIABLE
from stallguard.storage import run_files
from stallguard.supervisor import watching

LONG = 60.0  # seconds; only a broken test waits that long
ACTS = {
    "run.observe": False, "run.segments": "1s", "run.max_time": "1s", "policy.on_stall": "restart",
    "policy.memory_ahead": "restart", "policy.empty_caches": True, "policy.microbatches": 4, "checkpoint.enabled": True,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _home(monkeypatch, tmp_path):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))


@pytest.fixture
def stranger():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield process
    process.stdin.close()
    process.kill()
    process.wait()


def watch(pid, tmp_path, told):
    """Return the session of a watch whose user has ordered all that acts, and a thread that guards it."""
    settings = watching.settings(lambda: config.load(ACTS, {"HOME": str(tmp_path)}, tmp_path))
    asked = request.of_process(("kernel",), [sys.executable], "kernel", settings.loaded, tmp_path)
    return watching.session(asked, settings, os.environ, run_files.identity(pid), told.append)


def guarded(session, then):
    """Guard in the main thread, as signals need; `then` runs beside, once the run has begun."""

    def beside():
        until = time.monotonic() + LONG
        while not ((run := session.context.current.run) and run.current.number) and time.monotonic() < until:
            time.sleep(0.01)
        then()

    thread = threading.Thread(target=beside)
    thread.start()
    code = session.guard([])
    thread.join()
    return code


def command(session, verb):
    session.context.mailbox.post(UserCommand(at=session.context.clock.monotonic(), verb=verb))


@pytest.mark.parametrize("verb", ["stop", "interrupt", "finish"])
def test_who_ends_the_watch_does_not_end_the_process(stranger, tmp_path, verb):
    told = []
    session = watch(stranger.pid, tmp_path, told)
    assert guarded(session, lambda: command(session, verb)) == 0

    assert stranger.poll() is None
    assert VARIABLE in told[0]
    end = run_files.outcome(session.context.directory)
    assert (end.code, end.why) == (0, "the watch ended, and the process goes on")


def test_a_restart_is_refused_and_its_end_ends_the_watch(stranger, tmp_path):
    session, said = watch(stranger.pid, tmp_path, []), []

    def beside():
        said.append(session._refuses("restart"))
        command(session, "restart")
        stranger.stdin.close()

    code = guarded(session, beside)
    assert said == ["stallguard did not start it, and only watches it"]
    assert code in (0, GAVE_UP)
    assert run_files.outcome(session.context.directory) is not None


def test_no_setting_makes_a_watch_act(tmp_path):
    held = watching.settings(lambda: config.load(ACTS, {"HOME": str(tmp_path)}, tmp_path)).config
    assert held.limits().observe
    assert (held.run.segments, held.run.max_time) == (NEVER, NEVER)
    assert (held.policy.on_stall, held.policy.memory_ahead, held.policy.microbatches) == ("notify", "notify", 1)
    assert not held.checkpoint.enabled

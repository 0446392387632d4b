"""A process that stallguard did not start: its end is noticed, and nothing reaches it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from stallguard.errors import NO_SUCH_RUN, StallguardError
from stallguard.storage import run_files
from stallguard.supervisor.observed import Observed

LONG = 30.0  # seconds; only a broken test waits that long


@pytest.fixture
def stranger():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True)
    yield process
    process.stdin.close()
    process.kill()
    process.wait()


def test_no_signal_reaches_it_and_its_end_is_noticed(stranger):
    ends, there = [], threading.Event()

    def post(code, memory_kill):
        ends.append((code, memory_kill))
        there.set()

    watched = Observed(run_files.identity(stranger.pid), post)
    for name in ("TERM", "KILL", "INT", "STOP"):
        assert not watched.signal(name)
    watched.pass_on(9)
    assert not there.wait(0.2)
    assert stranger.poll() is None

    stranger.stdin.close()
    assert there.wait(LONG)
    assert ends == [(0, False) if sys.platform == "darwin" else (None, None)]


def test_after_the_watch_its_end_is_not_posted(stranger):
    ends = []
    watched = Observed(run_files.identity(stranger.pid), lambda *end: ends.append(end))
    watched.reap()
    stranger.stdin.close()
    watched._thread.join(LONG)
    assert not watched._thread.is_alive()
    assert ends == []


def test_one_that_is_over_is_refused_also_if_its_number_is_given_again(stranger):
    who = run_files.identity(os.getpid())
    earlier = type(who)(pid=who.pid, started=who.started - 100, boot=who.boot)
    with pytest.raises(StallguardError) as refused:
        Observed(earlier, lambda *_: None)
    assert refused.value.code == NO_SUCH_RUN

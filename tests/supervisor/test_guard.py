"""The parts of a run that judge and act: what they keep trying."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from stallguard.core import fold
from stallguard.core.events import OutputHeld
from stallguard.core.limits import Limits
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor.guard import NAME_EVERY, HeldOutput, SupervisorName

RUN, _ = fold.begin(Limits(), 0.0)


def test_a_run_that_was_taken_up_on_a_full_disk_says_later_who_guards_it(tmp_path):
    directory, now = RunDir(tmp_path), [0.0]
    dead = run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(
        schema=2, id=directory.id, command=[], argv=[], cwd="/", began="", supervisor=dead
    )
    run_files.keep_asked(directory, asked)
    refusing = tmp_path / f".run.json.{os.getpid()}"
    refusing.mkdir()  # the draft cannot be written
    context = SimpleNamespace(directory=directory, clock=SimpleNamespace(monotonic=lambda: now[0]))
    name = SupervisorName(context, tmp_path / "control")
    name.write()
    assert run_files.state(directory) == "lost"

    refusing.rmdir()
    now[0] += NAME_EVERY
    name.look(RUN)

    assert run_files.state(directory) == "running"
    assert run_files.asked(directory).control == str(tmp_path / "control")


def test_output_that_is_held_is_posted_every_two_seconds_and_output_that_is_read_is_not():
    clock, held, posted = [100.0], [0.0], []
    watch = HeldOutput(SimpleNamespace(blocked=lambda now: held[0]), posted.append, lambda: clock[0])

    for _ in range(50):  # 5 s of a reader that is slow, but reads
        clock[0], held[0] = clock[0] + 0.1, 0.5
        watch.look(None)
    assert posted == []

    held[0] = 0.0
    for _ in range(100):  # 10 s of one that takes nothing
        clock[0], held[0] = clock[0] + 0.1, held[0] + 0.1
        watch.look(None)
    assert 4 <= len(posted) <= 5
    assert all(isinstance(one, OutputHeld) for one in posted)
    assert posted[0].seconds == pytest.approx(1.0, abs=0.15)

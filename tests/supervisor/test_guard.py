"""The parts of a run that judge and act: what they keep trying."""

from __future__ import annotations

import os
from types import SimpleNamespace

from stallguard.core import fold
from stallguard.core.limits import Limits
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor.guard import NAME_EVERY, SupervisorName

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

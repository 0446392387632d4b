"""What is left to do for a run that has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from stallguard.core import fold
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor import conclusion

RUN = fold.begin(0.0)


def test_a_disk_that_takes_again_gets_the_outcome(tmp_path, monkeypatch):
    monkeypatch.setattr(conclusion, "LOOK", 0.02)
    directory, refusing = RunDir(tmp_path), tmp_path / "outcome.json"
    refusing.mkdir()  # no file can take its place
    threading.Timer(0.3, refusing.rmdir).start()

    conclusion.write_outcome(directory, RUN, "the end", patience=60.0)

    end = run_files.outcome(directory)
    assert end is not None
    assert end.why == "the end"


def test_a_run_whose_exit_code_is_awaited_or_whose_directory_is_gone_does_not_wait(tmp_path):
    (tmp_path / "outcome.json").mkdir()
    began = time.monotonic()
    conclusion.write_outcome(RunDir(tmp_path), RUN, "the end")
    conclusion.write_outcome(RunDir(tmp_path / "gone"), RUN, "the end", patience=60.0)
    assert time.monotonic() - began < 10.0


def test_what_a_killed_process_left_of_a_checkpoint_is_removed_and_that_of_a_living_one_stays(tmp_path):
    fit = tmp_path / "checkpoints" / "process" / "fit-0001"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for name in (f"tmp-g7-{ended.pid}", f"tmp-g7-{os.getpid()}", "g6"):
        (fit / name).mkdir(parents=True)
        (fit / name / "facts.json").touch()
    for draft in (fit / "CURRENT.tmp", fit / "g6" / "next.json.tmp"):
        draft.touch()

    conclusion.remove_unfinished_checkpoints(RunDir(tmp_path))

    assert sorted(path.name for path in fit.iterdir()) == ["g6", f"tmp-g7-{os.getpid()}"]
    assert [path.name for path in (fit / "g6").iterdir()] == ["facts.json"]

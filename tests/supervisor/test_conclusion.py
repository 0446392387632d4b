"""What is left to do for a run that has ended."""

from __future__ import annotations

import threading
import time

from stallguard.core import fold
from stallguard.core.limits import Limits
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor import conclusion

RUN, _ = fold.begin(Limits(), 0.0)


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

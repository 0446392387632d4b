"""A crash is shown with its line, its count and its batches wherever a run is shown; each run has a page."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .runs import Guarded, guard, stallguard

CRASH = """
import ctypes, stallguard
def on_batch_end(number):
    stallguard.beat()
    if number == 31:
        ctypes.string_at(0)
for number in range(1, 100):
    on_batch_end(number)
"""
LINE = "line 6 of train.py, in on_batch_end"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Guarded]:
    home = tmp_path_factory.mktemp("crash")
    (home / "train.py").write_text(CRASH)
    return home, guard(home, "--max-restarts", "1", "train.py", cwd=home, report=True)


def test_what_is_said_has_the_line_and_the_crashes(crashed):
    _, run = crashed

    assert f"the crash was in {LINE}; native code crashed (SIGSEGV)" in run.err
    assert "(62 batches in" in run.err
    assert ", 2 crashes, started twice; " in run.err
    assert "effective" not in run.err
    assert run.code == 139


def test_its_outcome_and_every_list_has_the_crashes(crashed):
    home, run = crashed
    end = run.outcome()

    assert (end["crashes"], end["incidents"], end["attempts"], end["batches"]) == (2, 0, 2, 62)
    assert "effective" not in end
    assert "2 crashes" in stallguard(home, "ls").out.decode()
    assert "  crashes     2\n" in stallguard(home, "status").out.decode()
    assert "2 crashes (native code crashed), 1 restart; " in stallguard(home, "morning").out.decode()
    [listed] = json.loads(stallguard(home, "ls", "--json").out)["runs"]
    assert listed["crashes"] == 2
    assert json.loads(stallguard(home, "morning", "--json").out)["runs"][0].get("effective") is None


def test_its_report_has_the_line_and_the_stacks_and_no_share(crashed):
    home, run = crashed
    assert run.run is not None
    made = json.loads(stallguard(home, "report", "--json").out)

    assert made["totals"]["crashes"] == 2
    assert made["totals"]["effective"] is None
    for number, trouble in enumerate(made["incidents"], 1):
        assert trouble["where"] == "train.py:6 in on_batch_end"
        assert trouble["evidence"]["place"] == f"incidents/crash-{number}"
        assert trouble["evidence"]["stacks"]
    text = stallguard(home, "report").out.decode()
    assert "effective training" not in text
    assert "It hung" not in text
    page = (run.run / "report.html").read_text()
    assert "It crashed at" in page
    assert "It hung at" not in page


FAILS = "import stallguard\nfor _ in range(2): stallguard.beat()\nraise KeyError('x')"


@pytest.mark.parametrize(
    ("script", "crashes", "share"),
    [("import stallguard\nstallguard.beat()", 0, True), (FAILS, 1, False), ("", 0, False)],
)
def test_every_run_has_its_page_and_only_one_that_trained_to_its_end_has_a_share(tmp_path, script, crashes, share):
    (tmp_path / "train.py").write_text(script)
    run = guard(tmp_path, "train.py", cwd=tmp_path, report=True)

    assert run.run is not None
    assert (run.run / "report.html").read_text().rstrip().endswith("</html>")
    assert run.outcome()["crashes"] == crashes
    assert ("effective" in run.outcome()) is share
    assert ("effective" in run.err) is share
    assert ("report: " in run.err) is bool(crashes)


LONG = "import stallguard, time\nwhile True:\n    stallguard.beat(); print('on', flush=True); time.sleep(0.05)"


@pytest.mark.parametrize("how", ["stop", "restart", "interrupt"])
def test_a_run_that_its_user_ends_or_starts_anew_has_its_page_and_no_crash(tmp_path, how):
    (tmp_path / "train.py").write_text(LONG)
    command = [sys.executable, "-m", "stallguard", "run", "train.py"]
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"on\n"
        if how == "restart":
            assert stallguard(tmp_path, "restart", "--from-scratch").code == 0
            until = time.monotonic() + 60
            while len(list((tmp_path / "runs/latest/probe").glob("*.page"))) < 2:
                assert time.monotonic() < until
                time.sleep(0.05)
        if how == "interrupt":
            run.send_signal(signal.SIGINT)
        else:
            assert stallguard(tmp_path, "stop").code == 0
        _, err = run.communicate(timeout=60)

    end = json.loads((tmp_path / "runs/latest/outcome.json").read_text())
    assert (tmp_path / "runs/latest/report.html").exists()
    assert end["crashes"] == 0
    assert b"crash" not in err
    assert end["attempts"] == (2 if how == "restart" else 1)

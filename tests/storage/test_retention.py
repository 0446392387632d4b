"""What is kept of the past, and that nothing which lives is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from stallguard.cli.debug import prune as command
from stallguard.config.table import KeepSettings
from stallguard.storage import paths, retention, run_files
from stallguard.storage.paths import RunDir, list_runs

DAY = 86400.0
NOW = 1_800_000_000.0


def facts(name: str, days: float = 0.0, size: int = 1000, *, alive: bool = False) -> retention.RunFacts:
    return retention.RunFacts(RunDir(Path(name)), NOW - days * DAY, size, alive)


def chosen(given_runs: list[retention.RunFacts], /, **settings) -> list[str]:
    return [item.run.id for item in retention.choose(given_runs, KeepSettings(**settings), NOW)]


def test_the_newest_are_kept():
    assert chosen([facts("a"), facts("b"), facts("c")], runs=2) == ["a"]


def test_what_is_too_old_goes():
    assert chosen([facts("a", 61), facts("b", 59)]) == ["a"]


def test_the_oldest_go_until_the_rest_fits():
    assert chosen([facts("a"), facts("b"), facts("c")], size=2000) == ["a"]


def test_a_small_old_run_stays_where_a_large_one_between_had_to_go():
    assert chosen([facts("a", size=10), facts("b", size=5000), facts("c", size=10)], size=100) == ["b"]


def test_the_newest_stays_however_large():
    assert chosen([facts("a", size=10**12)]) == []


def test_the_newest_stays_however_old_it_looks_by_a_wrong_clock():
    assert chosen([facts("a", 365), facts("b", 365)]) == ["a"]


def test_the_run_that_was_begun_last_stays_and_latest_means_it_when_the_clock_had_been_ahead(tmp_path):
    ahead, after = (paths.new_run("train", stamp, tmp_path) for stamp in ("20270101-000000", "20260101-000000"))
    trial = paths.new_run("train", "20260101-000001", tmp_path, trial=True)
    for run in (ahead, after, trial):
        run.asked.write_text("{}")

    gone = retention.prune(KeepSettings(runs=1), tmp_path)

    assert [item.run for item in gone] == [ahead]
    assert (tmp_path / "latest").resolve() == after.path

    shutil.rmtree(after.path)
    again = paths.new_run("train", "20250101-000000", tmp_path)
    again.asked.write_text("{}")
    newest = paths.new_run("train", "20240101-000000", tmp_path)
    shutil.rmtree(newest.path)
    retention.prune(KeepSettings(), tmp_path)

    assert (tmp_path / "latest").resolve() == again.path == paths.find_run("last", tmp_path).path


def test_what_lives_stays_by_any_rule():
    alive = [facts("a", 900, 10**12, alive=True), facts("b"), facts("c")]
    assert chosen(alive, runs=1, size=1) == ["b"]


@given(
    sizes=st.lists(st.integers(min_value=0, max_value=100), max_size=12),
    runs=st.integers(min_value=1, max_value=12),
    size=st.integers(min_value=0, max_value=300),
)
def test_what_is_left_keeps_to_every_rule(sizes, runs, size):
    given_runs = [facts(str(number), size=taken) for number, taken in enumerate(sizes)]
    gone = chosen(given_runs, runs=runs, size=size)
    left = [item for item in given_runs if item.run.id not in gone]

    assert len(left) <= runs
    assert sum(item.size for item in left) <= size or len(left) == 1
    assert bool(left) == bool(sizes)


def make(runs: Path, name: str, pid: int | None = None, ended: bool = True) -> RunDir:
    run = RunDir(runs / name)
    run.probe.mkdir(parents=True)
    who = run_files.identity(pid) if pid else run_files.Identity(pid=1, started=0.0)
    asked = run_files.RunRequest(schema=1, id=name, command=[], argv=[], cwd="/", began="", supervisor=who)
    run_files.write(run.asked, asked)
    run.journal.write_bytes(b"x" * 10_000)
    if ended:
        (run.path / "outcome.json").write_text("{}")
    return run


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Three runs that ended, in a home of their own."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    for name in ("run-1", "run-2", "run-3"):
        make(tmp_path / "runs", name)
    (tmp_path / "runs" / "latest").symlink_to("run-3")
    return tmp_path / "runs"


def left(runs: Path) -> list[str]:
    return [run.id for run in list_runs(runs)]


def test_prune_removes_and_says_what(runs):
    gone = retention.prune(KeepSettings(runs=1), runs)

    assert [item.run.id for item in gone] == ["run-1", "run-2"]
    assert sorted(path.name for path in runs.iterdir()) == ["latest", "run-3"]


def test_a_dry_run_removes_nothing(runs):
    assert len(retention.prune(KeepSettings(runs=1), runs, dry=True)) == 2
    assert len(left(runs)) == 3


def test_a_guarded_run_is_never_removed(runs):
    make(runs, "run-0", pid=os.getpid(), ended=False)
    retention.prune(KeepSettings(runs=1), runs)
    assert left(runs) == ["run-0", "run-3"]


def test_a_training_that_outlived_stallguard_is_never_removed(runs):
    lost = make(runs, "run-0", ended=False)
    training = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        page = lost.probe / f"{training.pid}.page"
        page.write_bytes(b"")
        retention.prune(KeepSettings(runs=1), runs)
        assert left(runs) == ["run-0", "run-3"]
    finally:
        training.communicate()
    retention.prune(KeepSettings(runs=1), runs)
    assert left(runs) == ["run-3"]


def test_a_later_process_of_the_same_number_keeps_nothing(runs):
    lost = make(runs, "run-0", ended=False)
    page = lost.probe / f"{os.getpid()}.page"
    page.write_bytes(b"")
    before = psutil.Process().create_time() - 1000
    os.utime(page, (before, before))
    assert not retention.is_alive(lost)


def test_a_training_of_which_psutil_cannot_tell_whether_it_lives_is_not_removed(runs, monkeypatch):
    lost = make(runs, "run-0", ended=False)
    (lost.probe / f"{os.getpid()}.page").write_bytes(b"")

    def broken(_process):
        raise RuntimeError("(ipc/mig) array not large enough")

    monkeypatch.setattr("psutil.Process.create_time", broken)
    monkeypatch.setattr("stallguard.storage.run_files.state", lambda _run: "lost")
    assert retention.is_alive(lost)


def test_latest_points_to_what_is_left(runs):
    make(runs, "run-4")
    os.utime(runs / "run-3" / "journal.jsonl", (0, 0))
    retention.prune(KeepSettings(age=DAY), runs)
    assert (runs / "latest").readlink() == Path("run-4")


def test_what_a_kill_left_half_removed_goes_the_next_time(runs):
    (runs / f"{retention.GONE}run-0").mkdir()
    retention.prune(KeepSettings(), runs)
    assert not (runs / f"{retention.GONE}run-0").exists()


def test_where_nothing_ever_ran_there_is_nothing_to_do(tmp_path):
    assert retention.prune(KeepSettings(), tmp_path / "none") == []


def test_the_verb_takes_durations_and_counts_and_tells_the_rest(runs):
    old = time.time() - 3 * DAY
    os.utime(runs / "run-1" / "journal.jsonl", (old, old))

    result = CliRunner().invoke(command, ["--age", "2d", "--json"], catch_exceptions=False)

    said = json.loads(result.output)
    assert [row["id"] for row in said["runs"]] == ["run-1"]
    assert said["runs"][0]["bytes"] >= 10_000
    assert left(runs) == ["run-2", "run-3"]


@pytest.fixture
def short():
    """A directory whose path leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        yield place


def test_sockets_of_runs_that_are_over_are_swept_and_those_of_others_stay(tmp_path, short, monkeypatch):
    monkeypatch.setattr(retention, "SWEEP_AFTER", -1.0)
    live = RunDir(tmp_path / "runs" / "live")
    live.path.mkdir(parents=True)
    run_files.write(live.asked, run_files.RunRequest(1, "live", [], [], "/", "", run_files.identity(os.getpid())))
    over = paths.socket_dir(short, owner=tmp_path / "runs" / "killed-at-its-start")
    alive = paths.socket_dir(short, owner=live.path)
    foreign = paths.socket_dir(short)

    retention.sweep([Path(short)])

    assert (over.exists(), alive.exists(), foreign.exists()) == (False, True, True)


def test_sockets_of_a_run_that_begins_stay(tmp_path, short):
    begun = paths.socket_dir(short, owner=tmp_path / "runs" / "begins")
    retention.sweep([Path(short)])
    assert begun.exists()

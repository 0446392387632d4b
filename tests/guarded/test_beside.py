"""What goes on beside a run: the machine kept awake, settings that change, the clock, room for the next run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from stallguard.core.events import ProbeNote
from stallguard.storage import journal, run_files
from stallguard.storage.paths import RunDir
from stallguard.supervisor.control import ask

from .runs import RUN, guard

BEATING = """
import sys, time, stallguard
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    stallguard.beat()
    time.sleep(0.05)
print("through")
"""


@pytest.fixture
def beating(tmp_path: Path) -> Path:
    """A script that beats for as many seconds as it is told."""
    script = tmp_path / "work" / "beating.py"
    script.parent.mkdir()
    script.write_text(BEATING)
    return script


def wait_for(what: Callable[[], bool], seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def noted(home: Path) -> list[ProbeNote]:
    events = journal.events(home / "runs" / "latest" / "journal.jsonl")
    return [event for event in events if isinstance(event, ProbeNote)]


def asked(run: RunDir) -> run_files.RunRequest:
    found = run_files.asked(run)
    assert found is not None
    return found


def notes(home: Path) -> list[str]:
    return [event.text for event in noted(home)]


def kinds(home: Path) -> set[str]:
    return {event.kind for event in noted(home)}


def test_a_setting_that_changes_in_its_file_holds_from_then_on_or_is_refused_with_a_word(
    tmp_path: Path, beating: Path
) -> None:
    home, settings = tmp_path / "home", beating.parent / "stallguard.toml"
    settings.write_text("[run]\nobserve = false\n")
    command = [*RUN, "--python", sys.executable, str(beating), "60"]
    environment = {**os.environ, "STALLGUARD_HOME": str(home)}
    with subprocess.Popen(command, cwd=beating.parent, env=environment) as run:
        try:
            wait_for(lambda: "awake" in kinds(home))
            settings.write_text("[run]\nobserve = true\n[keep]\nruns = 3\n")
            wait_for(lambda: "run.observe is now on, from now on" in notes(home))
            wait_for(lambda: "keep.runs is now 3: that holds from the next run on" in notes(home))
            settings.write_text("[run]\nobserve = nonsense")
            wait_for(lambda: any("did not change" in text for text in notes(home)))
            settings.write_text("[run]\nmax_time = '1s'\n[stop]\nbatch_wait = '0.5s'\n")
            assert run.wait(20) == 75
        finally:
            run.kill()


EDITED = """
import pathlib
from stallguard.cli import main
from stallguard.config import watch
watches = watch.FilesWatch.__init__
def edited(*arguments):
    pathlib.Path("stallguard.toml").write_text("[run]\\nobserve = true\\n")
    watches(*arguments)
watch.FilesWatch.__init__ = edited
main()
"""


def test_a_setting_that_changes_before_its_file_is_watched_is_not_missed(tmp_path: Path, beating: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EDITED, "run", "--python", sys.executable, str(beating), "1"],
        cwd=beating.parent, env={**os.environ, "STALLGUARD_HOME": str(tmp_path)}, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0
    assert "run.observe is now on, from now on" in notes(tmp_path)


def test_each_dump_that_is_asked_for_is_kept_and_the_training_is_not_called_stalled(
    tmp_path: Path, beating: Path
) -> None:
    run = RunDir(tmp_path / "home" / "runs" / "latest")
    command = [*RUN, "--python", sys.executable, str(beating), "60"]
    with subprocess.Popen(command, env={**os.environ, "STALLGUARD_HOME": str(tmp_path / "home")}) as process:
        try:
            wait_for(lambda: "awake" in kinds(tmp_path / "home"))
            for count in (1, 2):
                assert ask(asked(run).control, "dump")["ok"]
                wait_for(lambda: len(list(run.path.glob("dumps/*/manifest.json"))) == count)  # noqa: B023 - now
        finally:
            process.terminate()
            process.wait(20)

    assert all("beating.py" in stacks.read_text() for stacks in run.path.glob("dumps/*/stacks.txt"))
    assert not (run.path / "incidents").exists()


def test_a_loop_of_ones_own_ends_on_time_by_a_signal(tmp_path: Path, beating: Path) -> None:
    began = time.monotonic()
    run = guard(tmp_path, "--max-time", "2s", "--set", "stop.batch_wait=1s", str(beating), "60")

    assert run.code == 75, run.err
    assert [action["name"] for action in run.actions("attempt.signalled")] == ["TERM"]
    assert run.announced("run.paused")
    assert run.announced("run.not_resumable")
    assert not run.announced("run.resumable")
    assert "checkpoint to resume" not in run.err
    assert time.monotonic() - began < 30


INHIBIT = """#!{python}
import os, sys
with open({log!r}, "a") as log:
    print("began", os.getpid(), *sys.argv[1:], file=log, flush=True)
    sys.stdin.read()
    print("ended", file=log, flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a Mac is held awake by its own caffeinate")
@pytest.mark.parametrize("let_sleep", [False, True])
def test_the_machine_is_held_awake_for_as_long_as_the_run_lasts(tmp_path: Path, beating: Path, let_sleep: bool) -> None:
    tools, log = tmp_path / "tools", tmp_path / "log"
    tools.mkdir()
    log.touch()
    fake = tools / "systemd-inhibit"
    fake.write_text(INHIBIT.format(python=sys.executable, log=str(log)))
    fake.chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}

    run = guard(tmp_path, *(["--let-sleep"] if let_sleep else []), str(beating), "2", env=path)

    assert run.code == 0, run.err
    if let_sleep:
        assert log.read_text() == ""
    else:
        assert "--what=sleep:idle" in log.read_text()
        assert "through" in run.out.decode()
        pid = int(log.read_text().split()[1])
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), 5.0)


def test_the_oldest_runs_make_room_at_the_end_of_a_new_one(tmp_path: Path, beating: Path) -> None:
    for _ in range(3):
        run = guard(tmp_path, "--set", "keep.runs=2", str(beating), "0.1")

    kept = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir() and not path.is_symlink())
    assert len(kept) == 2
    assert run.run is not None
    assert run.run.name in kept
    assert run.announced("runs.pruned") == [{"count": "1 old run"}]

"""`status`, `top`, `ls --live`, `stop`, `restart` and `mute`: what a live run tells, and what reaches it."""

from __future__ import annotations

import datetime as dt
import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallguard.cli import live_runs, ls, status
from stallguard.core.events import Event
from stallguard.errors import StallguardError
from stallguard.report import status_rows
from stallguard.storage import paths, run_files
from stallguard.storage.run_files import Outcome, RunRequest
from stallguard.supervisor.control import Control

ROOT = Path(__file__).parents[2]
SNAPSHOT = {
    "schema": 1, "run": "one", "state": "running", "attempt": 2, "pid": 4711, "factor": 2, "device": "default",
    "seconds": 3725.0, "batches": 12_345, "silent": 0.4, "judgement": {"step": "healthy", "threshold": 12.0},
    "progress": {"phase": "step", "epoch": 2, "epochs": 10, "batch": 50, "batches": 100, "loss": 0.25, "beats": 9},
    "readings": {"machine": {"idle": 0.61},
                 "device": {"utilisation": 0.87, "memory_bytes": 6_200_000_000, "power_watts": 21.5},
                 "process": {"footprint_bytes": 5_100_000_000},
                 "memory": {"available_bytes": 16_000_000_000, "pressure": "normal"}},
    "rates": {"batches": 2.5, "cpu": 1.7}, "findings": [], "incidents": 1, "lost": 82.0,
}  # fmt: skip
STALLED = SNAPSHOT | {
    "state": "holding", "silent": 75.0, "judgement": {"step": "stalled", "threshold": 12.0},
    "findings": [{"cause": "device-wait", "confidence": 0.8}],
}  # fmt: skip


class Life:
    """A run that seems to live: this very process guards it, and its control socket is real."""

    def __init__(self, home: Path, name: str) -> None:
        self.run = paths.RunDir(home / "runs" / name)
        self.run.path.mkdir(parents=True)
        self.place = paths.socket_dir("/tmp")
        self.posted: list[Event] = []
        self.snapshot = SNAPSHOT | {"run": name}
        self.refusal = ""
        self.control = Control(
            self.place / "control", self.posted.append, time.monotonic, lambda: self.snapshot,
            lambda _verb: self.refusal,
        )  # fmt: skip
        me = run_files.identity(os.getpid())
        run_files.write(
            self.run.asked,
            RunRequest(1, name, ["train.py"], ["python", "train.py"], "/", "2026-03-07T22:30:00Z", me,
                     control=str(self.control.path)),
        )  # fmt: skip
        self.run.output.write_bytes(b"Epoch 3\n\r50/100 loss: 0.3\x1b[0m\r51/100 loss: 0.25")

    def wishes(self) -> list[tuple[str, str]]:
        return [(event.verb, event.argument) for event in self.posted]

    def close(self) -> None:
        self.control.close()
        shutil.rmtree(self.place)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def life(home):
    made = Life(home, "one")
    yield made
    made.close()


@pytest.fixture
def other(home):
    made = Life(home, "two")
    yield made
    made.close()


def over(home, name="ended", code=0):
    run = paths.RunDir(home / "runs" / name)
    run.path.mkdir(parents=True)
    ended_process = run_files.Identity(2**22 + 1, 0.0)
    run_files.write(
        run.asked, RunRequest(1, name, ["train.py"], [], "/", "2026-03-07T22:30:00Z", ended_process)
    )
    run_files.write(
        run.path / "outcome.json", Outcome(1, code, "it ended", "2026-03-07T23:30:00Z", 60.0, 5, 0, 1, 0.0)
    )
    return run


def say(command, *words):
    return CliRunner().invoke(command, words, catch_exceptions=False)


def test_status_is_one_screen_from_the_control_socket(life):
    answer = say(status.command)

    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        "one  train.py",
        "  state       running: batches end, for 1 h 2 min in all; attempt 2, 1/2 of the batch at a time",
        "  doing       inside a training step",
        "  silent      for 0.4 s, 12 s would be a stall",
        "  progress    epoch 3 of 10, batch 50 of 100, 5 min to go, loss 0.2500",
        "  batches     12\u202f345 batches, 2.5 a second",
        "  processor   1.70 cores, 61% of the machine idle",
        "  GPU         87% busy, 6.2 GB in use, 21.5 W",
        "  memory      5.1 GB of the training, 16 GB available, pressure normal",
        "  stalls      1 stall, 1 min 22 s lost",
        "  last words  51/100 loss: 0.25",
    ]


def test_a_stalled_run_is_exit_code_1_and_says_why(life):
    life.snapshot = STALLED

    answer = say(status.command, "one")

    assert answer.exit_code == 1
    assert "the training library never returned from a " in answer.output
    assert say(status.command, "--json").exit_code == 1


def test_a_stalled_run_shows_the_line_that_it_hangs_at(life):
    life.snapshot = STALLED
    incident = life.run.incident(1)
    incident.mkdir(parents=True)
    (incident / "manifest.json").write_text('{"where": "train.py:8 in step"}')

    announced = CliRunner().invoke(status.command, []).output
    assert "  hangs at    train.py:8 in step\n" in announced


def test_a_silence_that_lasts_is_lost_already():
    announced = dict(status_rows.rows(STALLED | {"lost": 75.0}))

    assert announced["stalls"] == "1 stall, 1 min 15 s lost", "the silence is in it"
    assert announced["silent"] == "for 1 min 15 s, 12 s is a stall"
    assert dict(status_rows.rows(SNAPSHOT | {"lost": 0.0}))["stalls"] == "1 stall"


def test_json_is_the_snapshot(life):
    assert json.loads(say(status.command, "--json").output) == life.snapshot


def test_a_snapshot_without_anything_is_shown_too(life):
    life.snapshot = {"schema": 1, "run": "one", "state": "new"}

    assert "new: nothing has been started" in say(status.command).output


@pytest.mark.parametrize(
    ("code", "exit_code", "word"), [(0, 0, "finished"), (124, 1, "gave up"), (1, 1, "failed")]
)
def test_an_ended_run_has_its_outcome(home, code, exit_code, word):
    over(home, code=code)

    answer = say(status.command)

    assert answer.exit_code == exit_code
    assert word in answer.output
    assert json.loads(say(status.command, "--json").output)["outcome"]["exit_code"] == code


@pytest.mark.parametrize(
    ("code", "why", "trial", "state"),
    [
        (143, "you asked to stop", False, "stopped"),
        (130, "interrupted by you", False, "interrupted"),
        (75, "it is 07:30", False, "stopped"),
        (1, "your script failed", False, "failed"),
        (0, "you asked to stop", False, "finished"),
        (143, "you asked to stop", True, "trial"),
    ],
)
def test_a_run_that_a_user_ended_did_not_fail(home, code, why, trial, state):
    run = over(home, code=code)
    run_files.write(
        run.path / "outcome.json", Outcome(1, code, why, "2026-03-07T23:30:00Z", 60.0, 5, 0, 1, 0.0)
    )
    if trial:
        (run.path / "trial").touch()

    assert run_files.state(run) == state
    assert state in say(ls.command, "--all").output
    assert ("ended" in say(ls.command).output) is not trial, "a try of find-batch is hidden"


def test_ls_shows_the_newest_runs_only_if_asked_for(home):
    over(home, "one")
    over(home, "two")

    assert [line.split()[0] for line in say(ls.command, "-n", "1").output.splitlines()] == ["two"]


def test_a_live_run_is_meant_before_a_newer_one_that_ended(home, life):
    over(home, "zz-newest")

    assert say(status.command).output.startswith("one")


def test_ps_lists_what_lives(home, life, other):
    over(home)
    other.snapshot = STALLED | {"run": "two"}

    lines = say(ls.command, "--live").output.splitlines()

    assert [line.split()[:3] for line in lines] == [["one", "4711", "running"], ["two", "4711", "holding"]]
    assert "2.5/s" in lines[0]
    assert "silent 1 min 15 s" in lines[1]
    assert [one["run"] for one in json.loads(say(ls.command, "--live", "--json").output)["runs"]] == [
        "one",
        "two",
    ]


def test_ps_lists_a_run_that_does_not_answer(home, life, other):
    life.control.close()
    lines = say(ls.command, "--live").output.splitlines()
    life.control = Control(life.place / "control", life.posted.append, time.monotonic, lambda: life.snapshot)

    assert [line.split()[0] for line in lines] == ["one", "two"]
    assert "silent" in lines[0]


@pytest.mark.parametrize(
    ("command", "words", "wish"),
    [
        (live_runs.stop, (), ("stop", "")),
        (live_runs.restart, ("one", "--from-scratch"), ("restart", "from scratch")),
        (live_runs.mute, (), ("mute", "3600.0")),
        (live_runs.mute, ("90s",), ("mute", "90.0")),
        (live_runs.mute, ("0", "--run", "one"), ("mute", "0.0")),
    ],
)
def test_an_order_reaches_the_run_and_nothing_is_said_on_standard_output(life, command, words, wish):
    answer = say(command, *words)

    assert (answer.exit_code, answer.stdout) == (0, "")
    assert life.wishes() == [wish]


def test_a_restart_without_a_checkpoint_is_wanted_in_so_many_words(life):
    with pytest.raises(StallguardError) as error:
        say(live_runs.restart)
    assert error.value.code == 2
    assert "--from-scratch" in error.value.cure
    assert life.wishes() == []

    (life.run.checkpoints / "process" / "fit-0001" / "g1").mkdir(parents=True)
    assert "from its last checkpoint" in say(live_runs.restart).stderr
    assert life.wishes() == [("restart", "")]


@pytest.mark.parametrize("command", [live_runs.stop, live_runs.restart, live_runs.mute])
def test_an_order_without_a_name_is_refused_where_it_could_mean_two(life, other, command):
    with pytest.raises(StallguardError) as error:
        say(command)

    assert error.value.code == 3
    assert error.value.why == "one, two"
    assert life.wishes() + other.wishes() == []


def test_an_order_for_a_run_that_is_over_is_a_no(home):
    over(home)
    with pytest.raises(StallguardError) as error:
        say(live_runs.stop, "ended")
    assert error.value.code == 1
    with pytest.raises(StallguardError) as error:
        say(live_runs.stop)
    assert error.value.code == 3


def test_a_pause_is_shown_wherever_the_run_is(life):
    now = dt.datetime(2026, 3, 7, 21, 25, 30)  # noqa: DTZ001 - as the user's clock
    assert status_rows.muted({"muted": 3599.0}, now) == "stall handling paused until 22:25"
    assert status_rows.muted({"muted": None}) == ""

    life.snapshot = life.snapshot | {"muted": 3599.0}
    for words in ((status.command,), (ls.command, "--live")):
        assert "stall handling paused until" in say(*words).output


@pytest.mark.parametrize("words", ["a while", "-5m"])
def test_a_time_that_is_none_is_wrong_usage(life, words):
    with pytest.raises(StallguardError) as error:
        say(live_runs.mute, words)

    assert error.value.code == 2
    assert "mute 0" in error.value.cure
    assert life.wishes() == []


def test_what_is_left_is_known_only_with_a_pace_and_an_end():
    heartbeat = SNAPSHOT["progress"]

    assert status_rows.remaining(heartbeat, 2.5) == (1000 - 250) / 2.5
    assert status_rows.remaining(heartbeat, None) is None
    assert status_rows.remaining(heartbeat | {"epochs": -1}, 2.5) is None


def test_a_bar_fills_with_the_silence():
    assert status_rows.silence_bar(SNAPSHOT).count("█") == 1
    assert status_rows.silence_bar(STALLED) == "█" * status_rows.BAR
    assert status_rows.silence_bar({"state": "new"}) == ""


def test_hostile_last_words_are_text():
    [(_, text)] = [row for row in status_rows.rows(SNAPSHOT, "\x1b[2J\u202ex") if row[0] == "last words"]
    assert text == "\u241b[2J<U+202E>x"


def test_top_without_a_terminal_is_one_status(life):
    answer = top(life, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    assert answer.communicate(timeout=30)[0].decode().startswith("one  train.py\n  state")
    assert answer.returncode == 0


def test_top_says_why_an_order_is_refused_and_stays(life):
    life.refusal = "not today"
    mine, theirs = pty.openpty()
    process = top(life, stdin=theirs, stdout=theirs)
    os.close(theirs)
    try:
        until(mine, b"2.5 a second")
        os.write(mine, b"m")
        until(mine, b"the run refused to mute; not today")
        os.write(mine, b"q")
        until(mine, b"\x1b[?1049l")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert life.wishes() == []


@pytest.mark.waits
def test_top_shows_the_run_takes_its_keys_and_gives_the_terminal_back(life):
    mine, theirs = pty.openpty()
    process = top(life, stdin=theirs, stdout=theirs)
    os.close(theirs)
    try:
        seen = until(mine, b"2.5 a second")
        os.write(mine, b"d")
        seen += until(mine, b"a dump is being kept")
        os.write(mine, b"m")
        seen += until(mine, b"are left alone for an hour")
        life.snapshot = life.snapshot | {"muted": 3599.0}
        seen += until(mine, b"stall handling paused until")
        os.write(mine, b"m")
        until(mine, b"are acted upon again")
        os.write(mine, b"q")
        seen += until(mine, b"\x1b[?1049l")
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(mine)
    assert life.wishes() == [("dump", ""), ("mute", ""), ("mute", "0")]
    assert b"51/100 loss: 0.25" in seen


def top(life, **streams):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    return subprocess.Popen(
        [sys.executable, "-m", "stallguard", "top"], env=env, stderr=subprocess.DEVNULL, **streams
    )


def until(descriptor, words):
    seen, deadline = b"", time.monotonic() + 20
    while words not in seen:
        assert select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        try:
            seen += os.read(descriptor, 1 << 16)
        except OSError:  # Linux says so where the other end is closed
            break
    assert words in seen
    return seen

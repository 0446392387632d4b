"""`stallguard morning` after real nights: stopped on time, finished the next, given up, ended by request, lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.core.events import Heartbeat
from stallguard.storage import journal
from tests.guarded.runs import guard, stallguard

pytestmark = pytest.mark.live
LEARN = """
import os, sys, time
import stallguard
done = [0]

def save(path):
    with open(path, "w") as file:
        file.write(str(done[0]))

def load(path):
    with open(path) as file:
        done[0] = int(file.read())

stallguard.checkpoint(save, load)
while done[0] < int(sys.argv[1]):
    stallguard.beat()
    done[0] += 1
    time.sleep(0.05)
    if sys.argv[2:] == ["crash"] and done[0] == 5:
        os.abort()
    if os.path.exists(os.path.join(sys.path[0], "enough")):
        break
print(done[0])
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "learn.py"
    file.write_text(LEARN)
    return str(file)


def pids_that_trained(home: Path) -> list[int]:
    """Return the processes of which the newest run's journal says so."""
    events = journal.events(home / "runs/latest/journal.jsonl")
    return [event.pid for event in events if isinstance(event, Heartbeat) and event.trains]


def morning(home: Path, *words: str) -> str:
    return stallguard(home, "morning", *words).out.decode()


def test_a_night_that_ended_on_time_and_the_one_that_finished_it(tmp_path: Path, script: str) -> None:
    home = tmp_path / "kept"
    first = guard(home, "--max-time", "6s", script, "100000")
    early = morning(home).splitlines()
    Path(script).with_name("enough").touch()
    second = guard(home, "--resume", "last", script, "100000")
    announced = morning(home).splitlines()

    assert first.run is not None
    assert second.run is not None
    one, two = first.run.name, second.run.name
    assert f"{script} 100000: stopped on time at " in early[0]
    effective = r"  no stalls; [\d.]+ % effective training time( \([^)]+\))?; "
    assert re.fullmatch(
        f"{effective}it left a checkpoint: stallguard run --resume {one} with the same command goes on from it",
        early[2],
    )
    assert len(announced) == 6
    assert re.fullmatch(f"{effective}it went on as {two}", announced[2])
    assert f"{script} 100000: finished at " in announced[3]
    assert announced[3].endswith(f"({two}, going on from {one})")
    assert re.fullmatch(f"{effective}nothing to do", announced[5])
    batches = [run["batches"] for run in json.loads(morning(home, "--json"))["runs"]]
    assert 0 <= sum(batches) - int(second.out) <= 1, "at most the batch of the checkpoint is counted twice"


def test_one_that_failed_for_good_says_why_and_what_it_cost(tmp_path: Path, script: str) -> None:
    options = ("--set", "policy.max_restarts=2", "--set", "policy.backoff=0.1s")
    guard(tmp_path / "kept", *options, script, "60", "crash")
    announced = morning(tmp_path / "kept").splitlines()

    assert ": failed at " in announced[0]
    assert "2 restarts within" in announced[0]
    assert announced[2].startswith("  3 crashes (")
    assert ", 2 restarts" in announced[2]


@pytest.mark.parametrize(("number", "state"), [(signal.SIGTERM, "ended"), (signal.SIGKILL, "lost")])
def test_one_that_was_ended_or_lost_says_how_to_go_on(tmp_path: Path, script: str, number: int, state: str) -> None:
    home = tmp_path / "kept"
    command = [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, script, "6000"]
    env = {**os.environ, "STALLGUARD_HOME": str(home)}
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as guarding:
        end = time.monotonic() + 120
        while not (trained := pids_that_trained(home)):
            assert time.monotonic() < end, "it never trained"
            time.sleep(0.1)
        guarding.send_signal(number)
        guarding.wait(120)
    if number == signal.SIGKILL:
        os.kill(trained[0], signal.SIGKILL)
        for place in Path(os.environ["TMPDIR"]).glob("stallguard-*"):
            shutil.rmtree(place)  # of its sockets: nobody was left to remove it
    announced = morning(home).splitlines()

    words = {"ended": ": ended at ", "lost": ": stallguard was ended at "}
    assert words[state] in announced[0]
    assert announced[2].endswith("it left no checkpoint: the next start begins from scratch")

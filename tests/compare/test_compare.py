"""compare, for real: guarded trials one after the other, their table, the choice, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from stallguard.cli.compare import ComparedTrials
from stallguard.host import system
from tests.cli.test_json import conforms
from tests.guarded.runs import Guarded, stallguard
from tests.guarded.test_trainings import LINUX, STALLS

pytestmark = pytest.mark.live
LOOP = """
import os, threading, time, stallguard
pause = 0.02 * float(os.environ.get("TIMES", "1"))
for number in range(int(os.environ.get("LAST", "100000"))):
    time.sleep(pause)
    stallguard.beat()
    if number == 30 and os.environ.get("HOW") == "crash":
        raise KeyError("no such column")
    if number == 100 and os.environ.get("HOW") == "hang":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    if number == 60 and "MARK" in os.environ:
        open(os.environ["MARK"], "w").close()
"""
KERAS = """
import argparse
import numpy as np
from tensorflow import keras

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
options = parser.parse_args()
x = np.random.default_rng(0).random((8192, 16), dtype=np.float32)
model = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x[:, :1], batch_size=options.batch_size, epochs=100000, verbose=0, validation_split=0.1)
"""


@pytest.fixture
def loop(tmp_path: Path) -> str:
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    return str(script)


def compared(home: Path, *words: str, env: dict[str, str] | None = None) -> tuple[Guarded, dict[str, Any]]:
    done = stallguard(home, "tune", "compare", "--json", "--python", sys.executable, *words, env=env, cwd=home)
    return done, conforms(done.out, ComparedTrials) if done.out else {}


def highest(trial: dict[str, Any]) -> float:
    """Return the most rows a second that a trial leaves possible."""
    return trial["rate"] * trial["rows"] * (1 + doubt(trial))


def lowest(trial: dict[str, Any]) -> float:
    return trial["rate"] * trial["rows"] * (1 - doubt(trial))


def doubt(trial: dict[str, Any]) -> float:
    """Return the share of its pace by which a trial can be wrong: its own spread, or 50 % on a busy machine."""
    return max(0.5, trial["spread"] / trial["rate"])


def test_a_variable_that_makes_steps_three_times_slower_is_measured_so_and_not_chosen(
    tmp_path: Path, loop: str
) -> None:
    done, found = compared(tmp_path, "--env", "TIMES=6,2", loop)

    assert done.code == 0, done.err
    slow, fast = found["trials"]
    assert (found["chosen"], found["reason"]) == ("TIMES=2", "faster")
    assert fast["rate"] / slow["rate"] == pytest.approx(3, rel=0.25)
    assert fast["measured"] >= 50
    assert min(slow["seconds"], fast["seconds"]) >= 5
    assert found["apply"] == [f"TIMES=2 stallguard run --python {sys.executable} -- {loop}"]
    assert done.run is None, "a trial is no newest run"
    listed = [json.loads(stallguard(tmp_path, "ls", "--json", *more).out) for more in ([], ["--all"])]
    assert [[run["state"] for run in one["runs"]] for one in listed] == [[], ["trial", "trial"]]
    assert not list((tmp_path / "runs").glob("*/checkpoints/*/*/g*"))


def test_a_trial_that_crashes_or_ends_early_is_a_row_and_the_others_go_on(tmp_path: Path, loop: str) -> None:
    done, found = compared(tmp_path, "--env", "HOW=crash,", "--env", "LAST=100000,40,3", loop)

    assert done.code == 0, done.err
    by = {(one["env"]["HOW"], one["env"]["LAST"]): one for one in found["trials"]}
    assert by["crash", "100000"]["trouble"] == by["crash", "40"]["trouble"] == "it ended: your script failed"
    assert by[None, "3"]["trouble"] == "it ended after 3 batches: too few to measure"
    assert by[None, "40"].get("trouble", "") == ""
    assert "it ended after 40 batches" in by[None, "40"]["note"]
    assert by[None, "100000"]["measured"] >= 50
    assert found["chosen"].startswith("no HOW")


@LINUX
def test_a_trial_that_stalls_is_a_row_with_that_reason(tmp_path: Path, loop: str) -> None:
    done, found = compared(tmp_path, *STALLS, "--steps", "200", "--env", "HOW=hang,", loop)

    assert done.code == 0, done.err
    stalled, whole = found["trials"]
    assert (stalled["trouble"], stalled["batches"]) == ("it stalled", 101)
    assert (whole.get("trouble", ""), found["chosen"]) == ("", "no HOW")


@pytest.mark.skipif(system.has_gpu() is not False, reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_one_clear_error(tmp_path: Path, loop: str) -> None:
    done, _ = compared(tmp_path, "--device", "cpu,gpu", loop)

    assert (done.code, done.out) == (2, b"")
    assert "this machine has no GPU" in done.err
    assert not (tmp_path / "runs").exists()


def test_the_gpu_is_hidden_from_a_trial_on_the_cpu(tmp_path: Path, loop: str) -> None:
    seen = tmp_path / "seen.txt"
    Path(loop).write_text(f"import os\nopen({str(seen)!r}, 'a').write(os.environ['CUDA_VISIBLE_DEVICES'])\n" + LOOP)
    done, _ = compared(tmp_path, "--device", "cpu", "--env", "LAST=40,41", loop)

    assert done.code == 0, done.err
    assert seen.read_text() == "-1-1"


def test_ctrl_c_ends_it_with_what_was_measured_so_far(tmp_path: Path, loop: str) -> None:
    mark = tmp_path / "mark"
    command = [
        sys.executable, "-m", "stallguard", "tune", "compare", "--json", "--python", sys.executable, "--steps", "500",
        "--env", f"MARK={tmp_path / 'first'},{mark},{tmp_path / 'never'}", "--env", "TIMES=0.25", loop,
    ]  # fmt: skip
    environment = {**os.environ, "STALLGUARD_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        give_up = time.monotonic() + 120
        while not mark.exists() and child.poll() is None:
            if time.monotonic() > give_up:
                child.kill()
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)

    assert child.returncode == 130, err.decode()
    found = conforms(out, ComparedTrials)
    first, second = found["trials"]
    assert first["measured"] >= 500
    assert (second["trouble"], second["batches"] >= 60) == ("it was interrupted", True)
    assert second["rate"] == pytest.approx(first["rate"], rel=0.5)
    assert found["interrupted"]
    assert found["chosen"] is None
    assert not (tmp_path / "never").exists()


@pytest.mark.tf
def test_batches_that_a_keras_script_takes_are_compared_by_rows(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(KERAS)
    done, found = compared(tmp_path, "--batch", "8,512", "--batch-flag=--batch-size", "--steps", "100", str(script))

    assert done.code == 0, done.err
    small, large = found["trials"]
    assert (small["rows"], large["rows"]) == (8, 512)
    assert large["memory"] > 50_000_000
    # A step of this model costs the loop more than the rows: 64 times as many take less than 20 times as long.
    assert large["rate"] * 512 > 3 * small["rate"] * 8
    if highest(small) < lowest(large):  # else the machine was too busy for an answer
        assert found["chosen"] == "512 rows"
        assert "--batch 512 --" in found["apply"][0]
    else:
        assert found["equal"] == ["512 rows"]

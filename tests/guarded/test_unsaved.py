"""Trainings in no checkpoint: said where a user looks, while there is time to make room on a disk, and after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .runs import COUNTER, NO_REPORT, Guarded, guard, stallguard

BEGIN = """
import json, os, subprocess, sys, time, stallguard
begun, step = not os.path.exists("begun"), 0
open("begun", "a").close()
"""
REST = """
generations = sys.modules["_stallguard_probe.checkpoint.generations"]
generations.SPARE = 1 << 62
for _ in range(60):
    step += 1
    stallguard.beat()
    time.sleep(0.02)
status = subprocess.run([sys.argv[1], "-m", "stallguard", "status", "--json"], stdout=subprocess.PIPE)
print(status.stdout.decode())
if begun:
    os.kill(os.getpid(), 9)
generations.SPARE = 0
while not any("g1" in found[1] for found in os.walk(os.path.join(os.environ["STALLGUARD_HOME"], "runs"))):
    step += 1
    stallguard.beat()
    time.sleep(0.02)
generations.SPARE = 1 << 62
for _ in range(60):
    stallguard.beat()
    time.sleep(0.02)
"""
SCRIPT = BEGIN + COUNTER + REST


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Guarded:
    place = tmp_path_factory.mktemp("full")
    (place / "script.py").write_text(SCRIPT)
    always = ("--checkpoint-every", "0.2s", "--checkpoint-cost", "1")
    root = str(Path(__file__).parent.parent.parent)
    env = {"PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))}
    return guard(place / "home", *always, "script.py", sys.executable, cwd=place, env=env)


def test_it_is_said_once_in_each_attempt_and_that_it_is_over(run: Guarded) -> None:
    lines = [line for line in run.err.splitlines() if "checkpoint" in line]
    told = [
        "failed" if "no checkpoint can be written" in line else "again" if "written again" in line else line
        for line in lines
    ]

    assert run.code == 0, run.err
    assert [line for line in told if line in ("failed", "again")] == ["failed", "failed", "again", "failed"]
    assert "there is none" in lines[0]
    assert "the checkpoint before" in lines[-1]


def test_a_kill_that_costs_all_has_its_reason(run: Guarded) -> None:
    assert "the training starts from the beginning: no checkpoint could be written (" in run.err
    assert "must stay free for the script" in run.err


def test_the_status_has_it_for_programs(run: Guarded) -> None:
    first, *_ = [json.loads(line) for line in run.out.decode().splitlines() if line.startswith("{")]
    (one,) = first["unsaved"]

    assert "must stay free" in one["why"]
    assert one["kept"] is False
    assert one["seconds"] > 0.5


def test_the_report_has_it(run: Guarded) -> None:
    assert run.run is not None
    page = stallguard(run.run.parent.parent, "report", run.run.name).out.decode()

    assert "the last training was in no checkpoint" in " ".join(page.split()).lower()


# That a loop is in no checkpoint is said when it has trained for 40 s; here after 1 s.  Each of the two trains for 3 s.
SOON = NO_REPORT + "import stallguard.core.advisories as one\none.NEVER_SAVED = 1.0\nmain()"
KERAS = """
import sys, time, keras, numpy as np, tensorflow as tf
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x, optimizer = tf.constant(np.ones((8, 4), "float32")), model.optimizer
@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)
if sys.argv[1] == "fit":
    model.fit(x, x[:, :1], batch_size=1, epochs=4, verbose=0, callbacks=[Slow()])
for _ in range(0 if sys.argv[1] == "fit" else 30):
    step()
    time.sleep(0.1)
"""


@pytest.mark.tf
@pytest.mark.parametrize("how", ["fit", "tape"])
def test_a_loop_beside_keras_is_told_that_it_is_in_no_checkpoint(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(KERAS)
    command = [sys.executable, "-c", SOON, "run", "--python", sys.executable, "script.py", how]
    env = os.environ | {"STALLGUARD_HOME": str(tmp_path / "home"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert ("no checkpoint is made (the script trains in a loop of its own" in done.stderr) is (how == "tape")

"""An unseeded script that is killed goes on with the data that it began with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from .runs import Guard, guard

KILLED_ONCE = """
import os, signal
def end_once():
    if not os.path.exists("ended"):
        open("ended", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""
DRAWS = """
import numpy, random
labels = "cat dog bird fish horse".split()
split = numpy.random.default_rng().permutation(100)
print("drawn:", split[:9], numpy.random.rand(), random.sample(range(100), 5), list(set(labels)), flush=True)
"""
TRAINS = """
import keras
class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            end_once()
x = numpy.linspace(0, 1, 600, dtype="float32").reshape(100, 6)[split]
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
print("drawn:", model.get_weights()[0][0, :3], flush=True)
model.compile("adam", "mse")
model.fit(x, x.sum(1), 16, epochs=2, verbose=0, callbacks=[End()], validation_split=0.2)
"""


def drawn(tmp_path: Path, script: str, *words: str, guard: Guard = guard) -> list[str]:
    """Return the lines of draws of a run whose first attempt is killed."""
    (tmp_path / "train.py").write_text(script)
    run = guard(tmp_path / "home", *words, "train.py", cwd=tmp_path)
    assert run.code == 0, run.err
    assert "starting the training again" in run.err
    return [line for line in run.out.decode().splitlines() if line.startswith("drawn:")]


def test_the_next_attempt_draws_the_same(tmp_path: Path) -> None:
    first, second = drawn(tmp_path, KILLED_ONCE + DRAWS + "end_once()")
    assert first == second


def test_two_trainings_of_a_shell_script_stay_two(tmp_path: Path) -> None:
    (tmp_path / "twice.py").write_text(DRAWS)
    (tmp_path / "end.py").write_text(KILLED_ONCE + "os.getpid = os.getppid\nend_once()")
    (tmp_path / "train.sh").write_text(f"for _ in 1 2; do {sys.executable} twice.py; done; {sys.executable} end.py")
    run = guard(tmp_path / "home", "bash", "train.sh", cwd=tmp_path)
    lines = [line for line in run.out.decode().splitlines() if line.startswith("drawn:")]
    assert lines[:2] == lines[2:]
    assert lines[0] != lines[1]


@pytest.mark.parametrize("off", ["--no-keep-randomness", "--no-checkpoint"])
def test_with_the_switch_off_it_draws_anew(tmp_path: Path, off: str) -> None:
    first, second = drawn(tmp_path, KILLED_ONCE + DRAWS + "end_once()", off)
    assert first != second


@pytest.mark.tf
def test_a_killed_training_goes_on_with_the_same_split(guard_keras: Guard, tmp_path: Path) -> None:
    lines = drawn(tmp_path, KILLED_ONCE + DRAWS + TRAINS, "--checkpoint-every", "0", guard=guard_keras)
    assert lines[:2] == lines[2:]
    assert len(lines) == 4

"""MLX: each update of an optimizer is a batch, eager or compiled; mlx-lm's iterations are; no loss changes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stallguard.probe import wire
from tests import mlx_kernels
from tests.probe.receiver import Heard, Receiver

from .scenarios import CHILDREN, table

SCRIPT = CHILDREN / "mlx_scenarios.py"
# Batches, checks, files of weights, the hook.
LOOPS = {
    "eager": (20, 0, 0, "mlx"),
    "applied": (20, 0, 0, "mlx"),
    "compiled": (20, 15, 0, "mlx"),
    "of_other_shapes": (20, 0, 0, "mlx"),
    "accumulated": (20, 0, 0, "mlx"),
    "compiled_accumulated": (20, 0, 0, "mlx"),
    "compiled_gradients": (20, 0, 0, "mlx"),
    "validated": (5, 7, 1, "mlx"),
}
# A validation of 2 batches, whose means are read at its end, at iterations 1, 10 and 20; two files of weights each
# tenth iteration, and one at the end.  Four slices a batch: 5 updates in 20 iterations.
LANGUAGE = {"lora_accumulated": (5, 9, 5, "mlx"), "lora": (20, 9, 5, "mlx")}


@pytest.fixture
def heard(other_python, tmp_path):
    """Return a function that runs scenarios under the probe."""

    def run(*scenarios: str) -> Heard:
        with Receiver() as receiver:
            command = [other_python("mlx"), str(SCRIPT), *scenarios]
            return receiver.run(command, 600, cwd=tmp_path, TMPDIR=mlx_kernels.share(tmp_path))

    return run


def rows(out: str) -> dict[str, Any]:
    return json.loads(out.splitlines()[-1])


def plain(python: str, folder: Path, *scenarios: str) -> dict[str, Any]:
    environment = {**os.environ, "TMPDIR": mlx_kernels.share(folder)}
    done = subprocess.run(
        [python, str(SCRIPT), *scenarios], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return {name: row["result"] for name, row in rows(done.stdout).items()}


def test_loops_are_counted_and_their_losses_are_the_same(heard, other_python, tmp_path):
    found = heard(*LOOPS)

    assert table(found) == LOOPS
    losses = {name: row["result"] for name, row in rows(found.out).items()}
    assert losses == plain(other_python("mlx"), tmp_path, *LOOPS)
    assert {"optimizer", "save"} <= set(found.hello()["hooks"])
    assert found.hello()["versions"]["mlx"].startswith("0.")
    assert not [note for note in found.notes if note["kind"] != "hello"]


def test_the_trainer_of_mlx_lm_is_counted_by_its_iterations(heard, other_python, tmp_path):
    found = heard(*LANGUAGE)

    assert table(found) == LANGUAGE
    last = found.last()
    assert (last["epoch"], last["epochs"], last["batch"], last["batches"]) == (0, 1, 20, 20)
    assert last["input_ns"] > 0
    found = rows(found.out)
    assert float(wire.bits_float(last["loss_bits"])).hex() == found["lora"]["result"][-1]
    assert (found["lora"]["micro"], found["lora_accumulated"]["micro"]) == (0, 20)
    losses = {name: row["result"] for name, row in found.items()}
    assert losses == plain(other_python("mlx"), tmp_path, *LANGUAGE)


def test_evaluation_alone_is_no_training(heard):
    found = heard("evaluated")

    assert rows(found.out)["evaluated"]["beats"] == 0
    assert not found.last()["flags"] & wire.FLAG_TRAINS


def test_a_loss_that_is_not_finite_is_found_in_a_compiled_step(heard):
    [note] = [note for note in heard("broken").notes if note["kind"] == "nonfinite"]

    assert (note["facts"]["value"], note["facts"]["where"]) == ("nan", "batch 11")


SCRIPT_OF_GENERATOR = """
import mlx.core as mx
from stallguard.probe.checkpoint import random_state
mx.random.seed(7)
before = random_state.capture()
drawn = mx.random.normal((4,))
random_state.restore(before)
print(mx.array_equal(mx.random.normal((4,)), drawn).item(), random_state.capture()["mlx"] == before["mlx"])
"""


def test_the_global_generator_draws_again_what_it_drew(other_python: Callable[[str], str]) -> None:
    command = [other_python("mlx"), "-c", SCRIPT_OF_GENERATOR]
    found = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert found.stdout == "True False\n", found.stderr

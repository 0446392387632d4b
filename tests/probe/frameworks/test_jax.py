"""JAX: a call of jax.jit that updates by an optimizer is a batch; no loss changes, nor how Keras trains."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from stallguard.probe import wire
from tests.probe.receiver import FEWER_PASSES, Heard, Receiver

from .scenarios import CHILDREN, guarded, keras_3_beats_and_dispatches_as_before, table

# Batches of each scenario; none has checks or files.
LOOPS = {
    "jitted": 20,
    "donated": 20,
    "eager": 20,
    "in_epochs": 20,
    "jitted_anew": 20,
    "other_shapes": 19,  # the place of the first call had called something else before
    "of_a_class": 20,
    "scanned": 20,
    "accumulated": 20,
    "lowered_before": 20,
    "mapped": 20,
    "flax_linen": 20,
    "flax_nnx": 20,
    "failing": 5,
    "keras_stateless": 20,
    "evaluated": 0,
}


def test_keras_3_beats_and_dispatches_as_before(other_python):
    heartbeat = keras_3_beats_and_dispatches_as_before(other_python, "jax")

    assert "first run" in heartbeat.phases()


@pytest.fixture
def python(other_python: Callable[[str], str]) -> str:
    """A Python with JAX that shows the calls of jax.jit."""
    found = other_python("jax")
    command = [found, "-c", "import sys; print(hasattr(sys, 'monitoring'))"]
    if subprocess.run(command, capture_output=True, text=True, check=True).stdout != "True\n":
        pytest.skip("the environment jax has a Python before 3.12, which does not show the calls of jax.jit")
    return found


def plain(python: str, *scenarios: str) -> dict[str, Any]:
    """Return what the scenarios compute without the probe, and how much XLA compiles."""
    command = [python, str(CHILDREN / "jax_scenarios.py"), *scenarios]
    environment = {**os.environ, "KERAS_BACKEND": "jax", **FEWER_PASSES}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return rows(done.stdout)


def rows(out: str) -> dict[str, Any]:
    found = json.loads(out.splitlines()[-1])
    return {name: (row["result"], row["compiled"]) for name, row in found.items()}


def heard(python: str, *scenarios: str, **environment: str) -> Heard:
    return guarded(python, "jax_scenarios.py", *scenarios, KERAS_BACKEND="jax", **environment)


def test_loops_are_counted_and_nothing_that_they_compute_or_compile_is_another(python):
    found = heard(python, *LOOPS)

    assert table(found) == {name: (beats, 0, 0, "optimizer" if beats else None) for name, beats in LOOPS.items()}
    assert rows(found.out) == plain(python, *LOOPS)
    assert found.hello()["versions"]["jax"]
    assert {"first run", "step"} <= set(found.phases())
    assert not [note for note in found.notes if note["kind"] != "hello"]


def test_a_loop_of_equinox_is_counted(python):
    if subprocess.run([python, "-c", "import equinox"], capture_output=True, check=False).returncode:
        pytest.skip("the environment jax has no Equinox")
    found = heard(python, "equinox_jitted")

    assert table(found) == {"equinox_jitted": (20, 0, 0, "optimizer")}
    assert rows(found.out) == plain(python, "equinox_jitted")


def test_a_loop_that_counts_itself_is_not_counted_twice(python):
    assert table(heard(python, "by_hand")) == {"by_hand": (20, 0, 0, "hand")}


def test_evaluation_alone_is_no_training(python):
    assert not heard(python, "evaluated").last()["flags"] & wire.FLAG_TRAINS


def test_a_tool_of_the_script_keeps_its_number_and_that_nothing_is_counted_is_said(python):
    def beside(*numbers: int) -> Heard:
        take = f"import runpy, sys; [sys.monitoring.use_tool_id(one, 'other') for one in {numbers}]"
        with Receiver() as receiver:
            command = [python, "-c", f"{take}; runpy.run_path('jax_scenarios.py')", "jitted"]
            return receiver.run(command, 600, cwd=CHILDREN)

    found = beside(3, 4)
    assert table(found) == {"jitted": (0, 0, 0, None)}
    [note] = [note for note in found.notes if note["kind"] == "jax"]
    assert "stallguard.beat()" in note["text"]
    assert table(beside(4)) == {"jitted": (20, 0, 0, "optimizer")}

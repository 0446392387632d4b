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
    "compiled_before": 20,
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
    assert {note["kind"] for note in found.notes} == {"hello", "loop"}


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


def test_a_probe_that_leaves_switches_its_events_off_and_frees_its_number(python):
    leaves = """
probe, monitoring = sys.modules["_stallguard_probe"].probe, sys.monitoring
before = monitoring.get_tool(4)
probe.withdraw()
after = monitoring.get_tool(4)
monitoring.use_tool_id(4, "next")
monitoring.set_events(4, monitoring.events.CALL)
events = (monitoring.events.CALL, monitoring.events.C_RETURN, monitoring.events.INSTRUCTION)
callbacks = [monitoring.register_callback(4, event, None) for event in events]
print(json.dumps([before, after, callbacks]))
"""
    code = f"import json, runpy, sys; runpy.run_path('jax_scenarios.py'); {leaves}"
    with Receiver() as receiver:
        found = receiver.run([python, "-c", code, "of_a_class"], 600, cwd=CHILDREN)
    assert found.code == 0, found.err
    assert json.loads(found.out.splitlines()[-1]) == ["stallguard", None, [None, None, None]]


def test_hooks_that_are_put_back_count_again(python):
    turns = """
import json, runpy, sys
probe = sys.modules["_stallguard_probe"].probe
run = runpy.run_path("jax_scenarios.py")
step, found = run["jax"].jit(run["own"]()), []
for turn in (None, probe.patches.take_out, probe.patches.put_back):
    turn and turn()
    before = probe.context.get("beats")
    run["loop"](step)
    found.append(probe.context.get("beats") - before)
print(json.dumps(found))
"""
    with Receiver() as receiver:
        found = receiver.run([python, "-c", turns], 600, cwd=CHILDREN)
    assert json.loads(found.out.splitlines()[-1]) == [20, 0, 20]


def test_the_names_of_the_state_are_those_of_the_script(python):
    found = guarded(python, "jax_names.py")
    assert found.code == 0, found.err
    lines = json.loads(found.out.splitlines()[-1])
    held = {name: (one or "").partition("(before them ")[2].partition(";")[0] for name, one in lines.items()}
    assert held == {
        "compiled": 'state = {"params": params, "opt_state": opt_state, "rng": rng, "now": now}',
        "in_a_function": 'state = {"weights": weights, "moments": moments}',
        "not_compiled": 'state = {"params": params, "ema": ema, "opt": opt}',
        "train_state": 'tracked = {"state": state}',
        "whole": 'state = {"train": train}',
        "statistics": 'state = {"params": params, "opt": opt, "batch_stats": batch_stats}',
        "nnx": 'state = {"params": PARAMS, "opt_state": OPT_STATE, "key": KEY}',
        "attributes": 'state = {"params": PARAMS, "opt_state": OPT_STATE, "key": KEY}',
    }
    assert lines["compiled"].startswith(
        "for epoch, batches in stallguard.track(state, DATA, epochs=EPOCHS): | for step,"
    )


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

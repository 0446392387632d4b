"""Exact resume: after a kill every fit goes on after its newest checkpoint, and ends as if nothing had happened."""

from __future__ import annotations

import shutil
import sys

import pytest

from stallguard.probe.checkpoint import announcements
from tests.damage import change_last_byte
from tests.probe.checkpoint.restarts import Restarts
from tests.probe.receiver import ROOT

CHILD = ROOT / "scripts" / "benches" / "resume_child.py"
EPOCHS, STEPS = 4, 6


@pytest.fixture
def script(receiver, tmp_path):
    return Restarts(receiver, tmp_path, CHILD, sys.executable, KERAS_BACKEND="tensorflow")


def batches(fit, begin):
    """Return what an attempt trains of a fit from its batch `begin` on, counted over all epochs."""
    return [(fit, place // STEPS, place % STEPS) for place in range(begin, EPOCHS * STEPS)]


@pytest.mark.tf
def test_of_two_fits_the_finished_one_is_not_trained_again_and_the_killed_one_goes_on(script):
    kinds = ("numpy", "tfdata")
    undisturbed = script.undisturbed(*kinds)
    script.attempt(*kinds, kill="1,2,3")
    resumed = script.attempt(*kinds, resume=True)
    assert resumed.rows == undisturbed.rows
    assert resumed.trained == batches(1, 2 * STEPS + 3)
    finished, onward = resumed.notes()
    assert finished == announcements.FINISHED % 1
    assert onward.endswith("checkpoint (fit 2, epoch 3, batch 3)")


@pytest.mark.tf
def test_whatever_gives_the_batches_they_go_on(script):
    """One chain of restarts of a script with six fits; each is killed once."""
    kinds = ("pydataset", "workers", "generator", "unknown", "unbuilt", "strides")
    undisturbed = script.undisturbed(*kinds)
    for number in range(len(kinds)):
        script.attempt(*kinds, kill=f"{number},{1 + number % 3},3", resume=number > 0)
    resumed = script.attempt(*kinds, resume=True)
    for there, here in zip(resumed.rows, undisturbed.rows, strict=True):
        assert there == here
    last = resumed.heartbeat.last()  # the last fit, two batches at once, was killed in the second two of its last epoch
    assert (last["epoch"], last["batch"], last["beats"]) == (EPOCHS - 1, STEPS, STEPS - 2)
    assert announcements.WORKERS not in resumed.heartbeat.hello()["beyond"]


@pytest.mark.tf
def test_what_threads_shuffle_is_said_to_come_in_another_order(script):
    assert announcements.WORKERS in script.attempt("racing").heartbeat.hello()["beyond"]


@pytest.mark.tf
def test_a_script_that_seeds_nothing_sees_the_same_data_after_a_restart(script, tmp_path):
    kinds = ("numpy", "tfdata", "pydataset")
    script.attempt(*kinds, kill="2,2,3", SEED="")
    resumed = script.attempt(*kinds, resume=True, SEED="")
    for fit in script.checkpoints.glob("*/fit-*"):
        shutil.rmtree(fit)  # the run's seed stays
    assert script.attempt(*kinds, resume=True, SEED="").rows == resumed.rows
    assert all(seen == resumed.rows[0]["seen"][0] for row in resumed.rows for seen in row["seen"])


@pytest.mark.tf
def test_it_goes_on_in_slices_where_the_restart_is_a_smaller_one(script):
    script.environment["DROPOUT"] = "0"  # each slice draws a mask of its own
    undisturbed = script.undisturbed("tfdata").rows[0]
    script.attempt("tfdata", kill="0,2,3")
    resumed = script.attempt("tfdata", resume=True, slices=4)
    assert resumed.trained == batches(0, 2 * STEPS + 3)
    assert [float.fromhex(loss) for loss in resumed.rows[0]["loss"]] == pytest.approx(
        [float.fromhex(loss) for loss in undisturbed["loss"]], rel=1e-5
    )
    assert resumed.heartbeat.last()["slices"] == 4
    for figure in ("iterations", "epochs", "seen", "rate"):
        assert resumed.rows[0][figure] == undisturbed[figure]


@pytest.mark.tf
def test_a_damaged_checkpoint_costs_the_batches_since_the_one_before(script):
    undisturbed = script.undisturbed("tfdata")
    script.attempt("tfdata", kill="0,2,3")
    fit = next(script.checkpoints.glob("*/fit-0001"))
    newest = fit / (fit / "CURRENT").read_text() / "tensors.bin"
    change_last_byte(newest)
    resumed = script.attempt("tfdata", resume=True)
    assert resumed.rows == undisturbed.rows
    assert resumed.trained == batches(0, 2 * STEPS + 2)
    assert "is damaged" in resumed.notes()[0]


@pytest.mark.tf
@pytest.mark.parametrize(
    ("name", "backend", "kinds"),
    [
        ("keras2", "tensorflow", ("numpy", "tfdata")),
        ("torch", "torch", ("numpy", "pydataset")),
        ("jax", "jax", ("numpy", "pydataset")),
    ],
)
def test_elsewhere_too(receiver, tmp_path, other_python, name, backend, kinds):
    script = Restarts(receiver, tmp_path, CHILD, other_python(name), KERAS_BACKEND=backend)
    undisturbed = script.undisturbed(*kinds)
    script.attempt(*kinds, kill="1,2,3")
    resumed = script.attempt(*kinds, resume=True)
    assert resumed.rows == undisturbed.rows
    assert resumed.trained == batches(1, 2 * STEPS + 3)

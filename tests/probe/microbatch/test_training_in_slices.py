"""Micro-batches: one update of the whole batch, for each kind of data and of model.

Losses, optimizers, weights, batch sizes, 16 bits, and the ways to compile on TensorFlow are those of
test_slices_tf.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.probe.imported import ForkReceiver

CHILD = Path(__file__).parent / "children" / "micro.py"
EVERYWHERE = [
    "sgd", "dataset_object", "generator", "class_weight", "regularised", "masked", "embedding", "two_outputs",
    "images", "unbuilt", "calls_super",
]  # fmt: skip
ELSEWHERE = ["sgd", "dataset_object", "masked", "two_outputs", "unbuilt", "eager"]
TENSORFLOW = ["adam_tfdata"]
SAID = ["normalised", "dropped", "own_step"]


def trained(servers, python, factor, cases, **environment):
    """Return ({case: [whole, sliced]}, what the child said)."""
    with ForkReceiver(servers) as receiver:
        command = [python, str(CHILD), *cases]
        heartbeat = receiver.run(command, 600, slices=factor, **environment)
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    return json.loads(heartbeat.out.splitlines()[-1]), heartbeat


def differing(rows, cases):
    """Return the figures of these cases that slices changed by more than float rounding."""
    return {
        f"{case} {figure}": (value, rows[case][1].get(figure))
        for case in cases
        for figure, value in rows[case][0].items()
        if rows[case][1].get(figure) != pytest.approx(value, rel=5e-6, abs=1e-7)
    }


@pytest.fixture(scope="module")
def child(servers):
    return trained(servers, sys.executable, 4, [*EVERYWHERE, *TENSORFLOW, *SAID], KERAS_BACKEND="tensorflow")


@pytest.mark.tf
class TestKeras3OnTensorFlow:
    @pytest.mark.parametrize("case", [*EVERYWHERE, *TENSORFLOW])
    def test_slices_train_what_the_whole_batch_trains(self, child, case):
        assert differing(child[0], [case]) == {}

    def test_it_is_said_that_normalisation_sees_smaller_batches(self, child):
        rows, heartbeat = child
        assert differing(rows, ["normalised"])
        assert [note for note in heartbeat.notes if note["kind"] == "micro" and "BatchNormalization" in note["text"]]

    def test_it_is_said_that_dropout_draws_other_masks_and_where_nothing_changes_nothing_is(self, child):
        said = [note["text"] for note in child[1].notes if note["kind"] == "micro"]
        assert (
            len([text for text in said if "; dropout" in text and "draws random numbers for each slice" in text]) == 1
        )
        assert len([text for text in said if ", as if whole (compared on" in text]) > 10

    def test_a_step_of_the_script_is_left_alone_and_that_is_said(self, child):
        rows, heartbeat = child
        assert rows["own_step"][0] == rows["own_step"][1]
        assert [sentence for sentence in heartbeat.hello()["beyond"] if "Own has a train_step of its own" in sentence]

    def test_a_step_that_calls_the_frameworks_own_counts_as_reached(self, child):
        own = [sentence for sentence in child[1].hello()["beyond"] if "train_step" in sentence]
        assert len(own) == 1  # of own_step, not of calls_super

    def test_the_record_tells_the_factor(self, child):
        assert child[1].last()["slices"] == 4

    def test_a_factor_beyond_the_batch_trains_sample_by_sample(self, servers):
        rows, _ = trained(servers, sys.executable, 64, ["masked"], KERAS_BACKEND="tensorflow")
        assert differing(rows, ["masked"]) == {}


@pytest.mark.tf
def test_slices_train_the_same_in_keras_2(servers, other_python):
    cases = [*ELSEWHERE, "adam_tfdata", "compiled", "strides"]
    rows, _ = trained(servers, other_python("keras2"), 4, cases, KERAS_BACKEND="tensorflow")
    assert differing(rows, cases) == {}

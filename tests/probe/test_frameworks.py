"""Real frameworks: every batch is a beat in every kind of loop, and the training is bit for bit the same."""

from __future__ import annotations

import json
import sys

import pytest

from stallguard.probe import wire
from tests.probe.frameworks.scenarios import CHILDREN, guarded, table
from tests.probe.imported import ForkReceiver
from tests.probe.receiver import Receiver

# scenario of tf_scenarios.py: beats, batches of validation and prediction, checkpoints, the hook that counts
EXPECTED = {
    "fit_arrays": (32, 8, 0, "callbacks"),
    "fit_eagerly": (20, 0, 0, "callbacks"),
    "fit_in_strides": (40, 0, 0, "callbacks"),
    "fit_in_uneven_strides": (20, 0, 0, "callbacks"),
    "evaluate_and_predict": (0, 40, 0, None),
    "fit_own_step": (40, 0, 0, "callbacks"),
    "fit_sequence": (40, 0, 0, "callbacks"),
    "fit_generator": (40, 0, 0, "callbacks"),
    "fit_mirrored": (40, 0, 0, "callbacks"),
    "single_batches": (20, 10, 0, "on_batch"),
    "from_generator": (10, 0, 0, "on_batch"),
    "eager_loop": (20, 0, 0, "optimizer"),
    "graph_loop": (20, 0, 0, "function"),
    "gradients_in_graph": (20, 0, 0, "optimizer"),
    "compiled_loop": (20, 0, 0, "function"),
    "concrete_function": (20, 0, 0, "function"),
    "epoch_in_graph": (40, 0, 0, "poll"),
    "checkpoints": (20, 0, 3, "callbacks"),
    "own_callback": (4, 0, 0, "callbacks"),
    "callbacks_by_hand": (20, 0, 0, "callbacks"),
    "slow_everywhere": (5, 1, 1, "on_batch"),
}
HOOKS = {
    "callbacks", "on_batch", "function", "concrete", "iterator", "tape", "optimizer", "trace", "first_run",
    "generator", "session", "poll", "fit", "save",
}  # fmt: skip


def plain(servers, interpreter, *names):
    """Run scenarios of TensorFlow without the probe."""
    with ForkReceiver(servers) as receiver:
        command = [interpreter, str(CHILDREN / "tf_scenarios.py"), *names]
        heartbeat = receiver.run(command, 600, cwd=CHILDREN, STALLGUARD_OWNER="1")
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    return heartbeat


@pytest.fixture(scope="module")
def keras3():
    return guarded(sys.executable, "tf_scenarios.py")


@pytest.fixture(scope="module")
def keras2(other_python):
    return guarded(other_python("keras2"), "tf_scenarios.py")


@pytest.mark.tf
class TestKeras3:
    def test_every_batch_is_a_beat(self, keras3):
        assert table(keras3) == EXPECTED

    def test_the_training_is_bit_for_bit_the_same(self, keras3, servers):
        alone = plain(servers, sys.executable)
        ours, theirs = (
            {name: row["losses"] for name, row in json.loads(text.splitlines()[-1]).items()}
            for text in (keras3.out, alone.out)
        )
        del ours["epoch_in_graph"], theirs["epoch_in_graph"]  # its random numbers come in any order
        assert ours == theirs
        assert keras3.err.count("AutoGraph") == alone.err.count("AutoGraph") == 0

    def test_all_hooks_took(self, keras3):
        assert set(keras3.hello()["hooks"]) == HOOKS
        assert {"python", "tensorflow", "keras"} <= set(keras3.hello()["versions"])
        assert not keras3.last()["flags"] & wire.FLAG_STEPPED_ASIDE
        assert [note for note in keras3.notes if note["kind"] not in ("hello", "batch", "epoch", "feed")] == []

    def test_phases_are_distinguished(self, keras3):
        seen = {wire.PHASES[record["longest_phase"]] for record in keras3.records} | set(keras3.phases())
        unseen = {"idle", "prediction", "named", "importing"}  # too short here, or not there
        assert set(wire.PHASES) - unseen <= seen
        assert keras3.phases()[0] == "importing"
        assert keras3.last()["input_ns"] > 0.3e9  # of 0.6 s in which the generator of slow_everywhere sleeps
        assert keras3.last()["iterations"] >= 0
        assert keras3.last()["poll_ns"] > 0
        assert keras3.last()["step_ns"] > 0


@pytest.mark.tf
class TestKeras2:
    def test_every_batch_is_a_beat(self, keras2):
        assert table(keras2) == EXPECTED

    def test_all_hooks_took(self, keras2):
        assert set(keras2.hello()["hooks"]) == HOOKS
        assert [note for note in keras2.notes if note["kind"] not in ("hello", "batch", "epoch", "feed")] == []

    def test_the_training_is_bit_for_bit_the_same(self, keras2, other_python, servers):
        alone = plain(servers, other_python("keras2"), "fit_arrays", "eager_loop", "graph_loop")
        ours = json.loads(keras2.out.splitlines()[-1])
        for name, row in json.loads(alone.out.splitlines()[-1]).items():
            assert ours[name]["losses"] == row["losses"], name
        assert keras2.err.count("AutoGraph") == alone.err.count("AutoGraph") == 0


@pytest.mark.tf
def test_tf_keras_beats_like_keras_2(other_python):
    names = ["single_batches", "eager_loop", "checkpoints"]  # each trace takes seconds here
    heartbeat = guarded(other_python("tf216"), "tf_scenarios.py", *names, TF_USE_LEGACY_KERAS="1")
    assert table(heartbeat) == {name: EXPECTED[name] for name in names}
    assert "tf_keras" in heartbeat.hello()["versions"]


@pytest.mark.tf
def test_the_first_keras_3_beats_like_the_newest(other_python):
    names = ["fit_arrays", "fit_in_strides", "fit_in_uneven_strides", "single_batches", "graph_loop"]
    heartbeat = guarded(other_python("tf216"), "tf_scenarios.py", *names)
    assert table(heartbeat) == {name: EXPECTED[name] for name in names}


@pytest.mark.tf
def test_programs_of_tensorflow_1_beat(tmp_path):
    (tmp_path / "old.py").write_text(OLD)
    with Receiver() as receiver:
        heartbeat = receiver.run([sys.executable, str(tmp_path / "old.py")], 120)
    assert heartbeat.code == 0, heartbeat.err[-2000:]
    assert heartbeat.last()["beats"] == 21
    assert wire.SOURCES[heartbeat.last()["source"]] == "session"


OLD = """
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
rows = tf.placeholder(tf.float32, [None, 4])
weights = tf.get_variable("weights", [4, 1])
train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(tf.matmul(rows, weights) ** 2))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(20):
        session.run(train, {rows: np.ones((8, 4))})
"""

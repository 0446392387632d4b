"""Slices only where they are the same: equal within rounding, or the whole batch to the bit; never a crash.

Each case is trained twice in one process, with slices and without: tests/probe/microbatch/children/slices.py.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.probe.imported import ForkReceiver

CHILD = Path(__file__).parent / "children" / "slices.py"
LOSSES = ["mse", "weighted", "loss_sum", "scalar_mean", "huber", "classes", "add_mean"]
OPTIMIZERS = ["momentum", "adamw", "averaged"]
SIZES = ["two_rows", "last_of_one", "last_of_three", "train_on_batch"]
HALVES = ["bfloat16", "float16"]
TENSORFLOW = ["loss_none", "mixed_parts", "compiled", "eager", "strides", "own_step", "own_step_eager"]
KERAS3 = ["accumulated", "squeezes"]
# Slices change something that is said by its name.
SAID = {
    "noise": "gaussian_noise",
    "gaussian_dropout": "gaussian_dropout",
    "dropout": "dropout",
    "sampled": "sampled",
    "normalised": "BatchNormalization (batch_normalization",
    "score": "r2 is computed slice by slice",
}
# Slices would train something else, or nothing: why the batch stays whole, as it is said.
WHOLE = {
    "scalar_sum": "the loss adds up over the batch",
    "contrast": "is not the mean over its rows",
    "neighbours": "single rows is not a number",
    "masked_by_hand": "is not the mean over its rows",
    "masked_outputs": "masked losses of several outputs",
    "add_sum": "is not the mean over its rows",
    "add_little": "is not the mean over its rows",
    "spread": "",
    "counts": "the layer 'counts",
    "busy": "",
    "busy_eager": "",
    "train_on_batch_sum": "the loss adds up",
    "one_row": "a single row",
}
WHOLE_IN_KERAS3 = {"dice": "is not the mean over its rows", "spectral": "the layer 'spectral_normalization"}
WHOLE_ON_TENSORFLOW = {
    "stateful": "the layer 'simple_rnn",
    "average_of_the_guide": "",
    "kept_noise": "",
    "fixed": "a fixed batch size of 16",
    "anchors": "'anchors' has 100 rows, the batch 16",
    "anchors_by_chance": "is not the mean over its rows",
    "temperature": "'temperature' is a single number",
    "graph": "'input 2' has 20 rows, the batch 16",
    "edges_by_chance": "is not the mean over its rows",
    "mirrored": "a distribution strategy",
    "own_loop": "a loop of the script's own",
    "own_step_sum": "the loss adds up",
    "compiled_step": "train_step of its own",
    "reading_step": "can draw from 'more'",
    "compiled_sum": "the loss adds up",
    "strides_sum": "the loss adds up",
}
TWICE = {"second_data": "has 20 rows", "second_fit": "the loss adds up", "fails_in_a_graph": "its step fails in slices"}
TOLERANCE = {"bfloat16": 1e-2, "float16": 1e-3}
ROUNDED = "; it computes in 16 bits, so the sum over slices is rounded differently from that of a whole batch"
DIFFERS = dict.fromkeys(("bfloat16", "float16"), ROUNDED)


def trained(servers, python, cases, slices=4, **environment):
    """Return {case: [the whole batch, slices]}."""
    with ForkReceiver(servers) as receiver:
        heartbeat = receiver.run([python, str(CHILD), *cases], 1500, slices=slices, **environment)
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    rows = json.loads(heartbeat.out.splitlines()[-1])
    assert {case: pair for case, pair in rows.items() if any("failed" in one for one in pair)} == {}
    return rows


def figures(one):
    """Return all numbers of a training, the logs of the last epoch among them."""
    logs = {name: values[-1] for name, values in one["logs"].items() if values}
    return {**logs, "sum": one["sum"], "squares": one["squares"], "updates": one["updates"]}


def kinds(one):
    return [kind for kind, _ in one["said"]]


def text(one):
    return " ".join(said for _, said in one["said"])


def wrong(rows, same=(), said=(), whole=()):
    """Return what is not as it must be, by case."""
    found = {}
    for case in same:
        alone, sliced = rows[case]
        near = pytest.approx(figures(alone), rel=TOLERANCE.get(case, 5e-6), abs=1e-7)
        differs = text(sliced).partition(";")[1:]
        if figures(sliced) != near or kinds(sliced) != ["micro"] or "".join(differs) != DIFFERS.get(case, ""):
            found[case] = (figures(alone), figures(sliced), sliced["said"])
    for case in said:
        alone, sliced = rows[case]
        if kinds(sliced) != ["micro"] or SAID[case] not in text(sliced):
            found[case] = sliced["said"]
        if (alone["updates"], alone["draws"]) != (sliced["updates"], sliced["draws"]):
            found[case] = (figures(alone), figures(sliced))
    reasons = {**WHOLE, **WHOLE_IN_KERAS3, **WHOLE_ON_TENSORFLOW}
    for case in whole:
        alone, sliced = ({**one, "said": None} for one in rows[case])
        if alone != sliced or kinds(rows[case][1]) != ["whole"] or reasons[case] not in text(rows[case][1]):
            found[case] = (alone, sliced, rows[case][1]["said"])
    return found


@pytest.fixture(scope="module")
def keras3(servers):
    cases = [*LOSSES, *OPTIMIZERS, *SIZES, *HALVES, *TENSORFLOW, *KERAS3, "ignored_class", *SAID, "attention", *WHOLE,
             *WHOLE_IN_KERAS3, *WHOLE_ON_TENSORFLOW, *TWICE]  # fmt: skip
    return trained(servers, sys.executable, cases, KERAS_BACKEND="tensorflow")


@pytest.mark.tf
class TestKeras3OnTensorFlow:
    @pytest.mark.parametrize("case", [*LOSSES, *OPTIMIZERS, *SIZES, *HALVES, *TENSORFLOW, *KERAS3, "ignored_class"])
    def test_slices_are_the_whole_batch_within_rounding(self, keras3, case):
        assert wrong(keras3, same=[case]) == {}

    @pytest.mark.parametrize("case", SAID)
    def test_what_slices_change_by_their_nature_is_said_by_its_name(self, keras3, case):
        assert wrong(keras3, said=[case]) == {}

    def test_a_dropout_inside_of_another_layer_is_named_too(self, keras3):
        assert "dropout" in text(keras3["attention"][1])

    @pytest.mark.parametrize("case", [*WHOLE, *WHOLE_IN_KERAS3, *WHOLE_ON_TENSORFLOW])
    def test_what_slices_would_train_otherwise_stays_whole_to_the_bit(self, keras3, case):
        assert wrong(keras3, whole=[case]) == {}

    def test_a_model_that_is_compiled_anew_is_compared_anew(self, keras3):
        alone, sliced = keras3["second_fit"]
        assert kinds(sliced) == ["micro", "whole"]
        assert figures(sliced) == pytest.approx(figures(alone), rel=5e-6)

    def test_data_of_another_kind_are_compared_anew(self, keras3):
        alone, sliced = keras3["second_data"]
        assert TWICE["second_data"] in sliced["said"][-1][1]
        assert sliced["digest"] == alone["digest"]

    def test_what_fails_only_while_it_is_traced_is_trained_whole_in_the_same_process(self, keras3):
        alone, sliced = keras3["fails_in_a_graph"]
        assert kinds(sliced) == ["micro", "whole"]
        assert TWICE["fails_in_a_graph"] in text(sliced)
        assert (sliced["digest"], sliced["logs"]) == (alone["digest"], alone["logs"])

    def test_nothing_of_ours_failed(self, keras3):
        assert {case: sliced["surprises"] for case, (_, sliced) in keras3.items() if sliced["surprises"]} == {}

    def test_a_factor_beyond_the_batch_and_single_rows(self, servers):
        rows = trained(
            servers,
            sys.executable,
            ["mse", "last_of_three", "one_row", "scalar_sum"],
            slices=64,
            KERAS_BACKEND="tensorflow",
        )
        assert wrong(rows, same=["mse", "last_of_three"], whole=["one_row", "scalar_sum"]) == {}


# Fewer cases elsewhere: what differs is how rows are taken, drawn for, held back and put back.
ELSEWHERE_SAME = ["mse", "weighted", "loss_sum", "adamw", "last_of_one", "train_on_batch", "float16"]
ELSEWHERE_SAID = ["noise", "dropout", "sampled", "normalised", "score"]
ELSEWHERE_WHOLE = ["scalar_sum", "contrast", "masked_by_hand", "add_little", "counts", "busy", "one_row"]


def agree_elsewhere(servers, python, backend, whole):
    whole = [*ELSEWHERE_WHOLE, *whole]
    rows = trained(servers, python, [*ELSEWHERE_SAME, *ELSEWHERE_SAID, *whole], KERAS_BACKEND=backend)
    assert wrong(rows, same=ELSEWHERE_SAME, said=ELSEWHERE_SAID, whole=whole) == {}
    assert {case: sliced["surprises"] for case, (_, sliced) in rows.items() if sliced["surprises"]} == {}


@pytest.mark.tf
def test_the_same_holds_in_keras_2(servers, other_python):
    more = ["masked_outputs", "spread", "busy_eager", "train_on_batch_sum"]
    agree_elsewhere(servers, other_python("keras2"), "tensorflow", [*WHOLE_ON_TENSORFLOW, *more])

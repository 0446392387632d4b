"""A look at the batches before they are trained: the right ones are seen, and the training is the same to the bit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.probe.imported import ForkReceiver

CHILDREN = Path(__file__).parent / "children"
ARRAYS = ["numpy", "numpy_partial", "sample_weight", "dataset_object", "python_generator"]
PIPELINES = ["pipeline", "known_shapes", "repeated", "too_short", "generated", "nested", "strides", "raises",
             "raises_in_strides"]  # fmt: skip
OPTIONS = ["eager", "compiled", "strides_numpy"]
PIPELINES_OF_KERAS_2 = ["pipeline", "repeated", "nested", "strides", "raises", "raises_in_strides"]
EVERY_FRAMEWORK = [
    (None, "keras", "tensorflow", [*ARRAYS, *PIPELINES, *OPTIONS, "strides_unknown", "strides_compiled"]),
    ("keras2", "keras", "tensorflow", [*ARRAYS[1:], *PIPELINES_OF_KERAS_2, *OPTIONS]),
    ("tf216", "tf_keras", "tensorflow", ["pipeline", "strides_numpy"]),  # each trace takes three seconds here
    ("jax", "keras", "jax", [*ARRAYS[1:], *OPTIONS]),
    ("torch", "keras", "torch", ARRAYS),
]
SAME = ("weights", "history", "traces", "error", "given")


def ran(servers, child, python, cases, **environment):
    """Return {case: what the child found}."""
    with ForkReceiver(servers) as receiver:
        heartbeat = receiver.run([python, str(CHILDREN / child), *cases], 600, **environment)
    assert heartbeat.code == 0, heartbeat.err[-3000:]
    return json.loads(heartbeat.out.splitlines()[-1])


@pytest.mark.tf
@pytest.mark.parametrize(("name", "keras", "backend", "cases"), EVERY_FRAMEWORK)
def test_a_look_at_every_batch_changes_no_bit(servers, other_python, name, keras, backend, cases):
    python = other_python(name) if name else sys.executable
    rows = ran(servers, "lookahead.py", python, cases, KERAS=keras, KERAS_BACKEND=backend)
    assert {case: {key: alone[key] for key in SAME} for case, (alone, _) in rows.items()} == {
        case: {key: looked[key] for key in SAME} for case, (_, looked) in rows.items()
    }
    for case, (alone, looked) in rows.items():
        assert looked["arranged"], case
        assert looked["looks"], case
        assert looked["seen"] == pytest.approx(looked["given"], rel=1e-5), case
        assert bool(alone["error"]) == case.startswith("raises"), (case, alone["error"])


@pytest.fixture(scope="module")
def calls(servers):
    cases = [
        "fed",
        "fed_strides",
        "twice",
        "end_of_data",
        "look_raises",
        "look_passes",
        "refused",
        "strange_data",
        "no_graph",
    ]
    return ran(servers, "lookahead_calls.py", sys.executable, cases, KERAS_BACKEND="tensorflow")


@pytest.mark.tf
class TestOneCall:
    @pytest.mark.parametrize("case", ["fed", "fed_strides"])
    def test_batches_that_were_drawn_are_trained_first(self, calls, case):
        taken, alone, fed = calls[case]
        assert taken
        assert fed == alone
        assert alone[1] == (7 if case == "fed" else 3)

    def test_two_looks_see_the_same_batch_and_the_next_call_is_the_frameworks_own(self, calls):
        assert calls["twice"] == {"seen": [["one", 1, 10], ["other", 1, 10]], "back": True}

    def test_at_the_end_of_the_data_there_is_nothing_to_see(self, calls):
        assert calls["end_of_data"] == [0, [0]]

    def test_a_look_that_fails_is_reported_and_the_batch_is_trained(self, calls):
        alone, looked, surprises = calls["look_raises"]
        assert looked == alone
        assert surprises == 1

    def test_what_the_owner_lets_pass_leaves_the_fit_untrained(self, calls):
        assert calls["look_passes"] == {"raised": True, "updates": 0, "surprises": 0}

    def test_what_cannot_be_looked_into_is_left_as_it_was(self, calls):
        assert calls["refused"] == [False, False, False]

    def test_an_error_of_our_own_before_the_draw_is_reported_and_is_not_the_pipelines(self, calls):
        alone, looked, seen, surprises = calls["no_graph"]
        assert looked == alone
        assert (seen, surprises) == ([1], ["an empty cell"])

    def test_unknown_data_reach_the_train_function_untouched(self, calls):
        assert calls["strange_data"] == [1, []]


def test_a_loop_that_draws_by_itself_cannot_be_fed(servers, other_python):
    rows = ran(servers, "lookahead_calls.py", other_python("torch"), ["refuses_to_feed"], KERAS_BACKEND="torch")
    assert rows == {"refuses_to_feed": [False, True]}

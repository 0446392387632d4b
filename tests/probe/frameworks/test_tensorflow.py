"""The script's Python functions inside TensorFlow's graphs: each call is measured, for the work that it is done for."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from stallguard.probe.frameworks import tensorflow
from stallguard.probe.frameworks.tensorflow import PythonFunctions
from tests.probe.test_lookahead import ran

FUNCTIONS = {"input": "slow_map", "step": "slow_loss"}


def measured(servers, case):
    child = "python_functions.py"
    return ran(servers, child, sys.executable, [case], KERAS="keras", KERAS_BACKEND="tensorflow")


@pytest.mark.tf
@pytest.mark.parametrize("case", FUNCTIONS)
def test_a_function_is_measured_for_the_input_or_the_step(servers, case):
    found = measured(servers, case)
    assert [(kind, name) for kind, name, *_ in found["measured"]] == [(case, FUNCTIONS[case])]
    calls, nanoseconds = found["measured"][0][2:]
    assert calls == found["calls"][FUNCTIONS[case]] > 0
    assert nanoseconds >= calls * 2_000_000


@pytest.mark.tf
def test_a_generator_is_not_measured_twice(servers):
    found = measured(servers, "generator")
    assert found["calls"]["generate"] == 80
    assert [(kind, name) for kind, name, *_ in found["measured"]] == [("input", "generate")]
    assert 80 <= found["measured"][0][2] <= 82  # batches are fetched ahead, and the end is a call too


def test_functions_that_are_registered_for_ever_do_not_grow_the_tables(monkeypatch):
    monkeypatch.setattr(tensorflow, "MOST", 3)
    hook = PythonFunctions(SimpleNamespace(python_functions={}))

    def traced():
        return None

    for number in range(10):
        hook.registered((tensorflow.STEP_FUNCTION, traced), f"pyfunc_{number}")
    assert [hook.calls(None, f"pyfunc_{number}") is not None for number in (0, 6, 7, 9)] == [False, False, True, True]
    assert list(hook.context.python_functions.values()) == [[0, 0]]

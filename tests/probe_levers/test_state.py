"""What of an object is state, and that it comes back as it was."""

# ruff: noqa: NPY002 - the generator that scripts use

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe.backup import randomness, seeds, tensors
from stallguard.probe.backup.attributes import Watched
from stallguard.probe.backup.encoding import NotPlain, decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(SCALARS, inner),
    max_leaves=20,
)


def through_json(value):
    arrays = []
    code = json.loads(json.dumps(encode(value, arrays)))
    meta, blobs = tensors.pack(arrays)
    return decode(code, tensors.unpack(meta, [memoryview(bytes(blob)) for blob in blobs]))


@given(PLAIN)
def test_plain_values_come_back_with_their_types(value):
    back = through_json(value)
    assert back == value
    assert repr(back) == repr(value)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_arrays_come_back_to_the_bit(dtype, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    back = through_json({"a": [array]})["a"][0]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert back.tobytes() == array.tobytes()
    back[...] = 0  # and may be written to


def test_a_number_of_numpys_stays_one():
    back = through_json(np.float32(1.25))
    assert type(back) is np.float32
    assert back == 1.25


def test_a_function_comes_back_by_its_name():
    assert through_json([np.less, json.dumps]) == [np.less, json.dumps]


@pytest.mark.parametrize("value", [object(), lambda: 1, {1: object()}, np.array([object()])])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(NotPlain):
        encode(value, [])


class Callback:
    def __init__(self):
        self.model = object()
        self.folder = "logs/2024-01-01"
        self.best = None
        self.losses = []
        self.weights = None


def test_only_what_changed_since_training_began_is_state():
    callback = Callback()
    watched = Watched(callback)
    callback.best, callback.losses, callback.weights = 0.5, [1.0, 0.5], [np.ones(3)]
    arrays = []
    state = watched.changed(arrays)
    assert sorted(state) == ["best", "losses", "weights"]

    later = Callback()
    later.folder, kept = "logs/2024-01-02", later.losses
    Watched(later).restore(state, arrays)
    assert later.folder == "logs/2024-01-02"
    assert later.best == 0.5
    assert later.losses is kept  # somebody may hold the same list
    assert kept == [1.0, 0.5]
    assert later.weights[0].tolist() == [1, 1, 1]


def test_a_datasets_own_rows_are_not_its_state():
    class Data:
        pass

    data = Data()
    data.rows, data.order = np.zeros(1000), np.arange(10)
    watched = Watched(data, limit=500)
    data.rows, data.order = np.ones(1000), np.arange(10)[::-1]
    assert sorted(watched.changed([])) == ["order"]


def test_the_generators_go_on_where_they_were():
    random.seed(1)
    np.random.seed(1)
    states = through_json(randomness.capture())
    wanted = random.random(), np.random.rand()
    random.random()
    np.random.rand(5)
    randomness.restore(states)
    assert (random.random(), np.random.rand()) == wanted


def test_a_generator_that_moved_is_told_from_one_that_did_not():
    before = randomness.capture()
    np.random.rand()
    after = randomness.capture()
    assert randomness.same(before, after, "python")
    assert not randomness.same(before, after, "numpy")


def test_a_run_has_one_seed_and_another_run_another(tmp_path):
    one = seeds.of_run(str(tmp_path / "one"))
    assert seeds.of_run(str(tmp_path / "one")) == one
    assert seeds.of_run(str(tmp_path / "other")) != one


def test_a_generator_that_the_script_may_have_seeded_is_left_alone(tmp_path):
    assert "random" not in seeds.early(str(tmp_path))  # this process has imported it

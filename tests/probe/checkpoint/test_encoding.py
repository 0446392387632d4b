"""What of an object is state, and that it comes back as it was."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe.checkpoint import tensors
from stallguard.probe.checkpoint.encoding import NotPlain, decode, encode

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(SCALARS, inner), max_leaves=20
)


class Color(enum.Enum):
    RED = 1


def through_json(value, existing=None):
    arrays = []
    code = json.loads(json.dumps(encode(value, arrays)))
    meta, blobs = tensors.pack(arrays)
    return decode(code, tensors.unpack(meta, [memoryview(bytes(blob)) for blob in blobs]), existing)


@pytest.mark.costly
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
    assert through_json([np.less, math.sqrt, Color]) == [np.less, math.sqrt, Color]


@pytest.mark.parametrize(
    "value",
    [
        collections.deque([1, 2], maxlen=3), collections.defaultdict(list, {1: [2]}), collections.Counter("abc"),
        collections.OrderedDict(a=1), b"ab", bytearray(b"x"), 1 + 2j, {1, 2},
        datetime.datetime(2026, 11, 22, 3, tzinfo=datetime.UTC),
        datetime.date(2026, 11, 22), pathlib.Path("/a"), decimal.Decimal("1.5"), fractions.Fraction(1, 3), Color.RED,
        frozenset([3]), [0.5] * 100, tuple(range(100)), [np.float32(1.5)] * 70, collections.deque([0.1] * 99),
        [2**70] * 70, float("inf"), [True] * 80, dict, len,
    ],
    ids=repr,
)  # fmt: skip
def test_what_scripts_keep_comes_back_of_its_own_kind(value):
    back = through_json(value)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    ("held", "value"),
    [
        ([], [1, 2]), ({}, {"a": 1}), (set(), {1}), (collections.deque(maxlen=2), collections.deque([1], maxlen=2)),
        (collections.defaultdict(lambda: 0), collections.defaultdict(lambda: 0, a=1)),
        (collections.Counter("zz"), collections.Counter("ab")), (np.zeros(3), np.arange(3.0)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_others_may_hold_is_changed_in_place(held, value):
    back = through_json(value, held)
    assert back is held
    assert repr(back).split("at 0x")[0] == repr(value).split("at 0x")[0]
    assert list(back) == list(value)


@pytest.mark.parametrize("value", [object(), lambda: 1, {1: object()}, np.array([object()]), random.SystemRandom()])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(NotPlain):
        encode(value, [])


def two_places():
    held = [0]
    array = np.array([held, None], object)
    return [held, (held, 1), {"a": held}, collections.deque([held]), array, [[0]] * 2, [[1], [2]]]


def test_what_is_one_object_in_several_places_is_one_in_all_of_them_again():
    back = through_json(two_places())
    assert repr(back) == repr(two_places())
    assert back[0] is back[1][0] is back[2]["a"] is back[3][0] is back[4][0]
    assert back[5][0] is back[5][1] is not back[0]
    assert back[6][0] is not back[6][1]


def test_two_objects_are_not_changed_into_one_that_was_in_two_places():
    held = two_places()
    one, rows = held[0], held[5][0]
    value = two_places()
    value[0].append(3)
    value[5][1] = [7]  # apart now
    value[6][1] = value[6][0]  # one now
    back = through_json(value, held)
    assert back is held
    assert repr(back) == repr(value)
    assert back[0] is one is back[1][0]
    assert back[5][0] is rows is not back[5][1]
    assert back[6][0] is back[6][1]


def test_a_container_that_contains_itself_is_not_plain():
    held = [1]
    held.append({"a": held})
    with pytest.raises(NotPlain, match="a list that contains itself"):
        encode(held, [])

"""Plain objects that a script hands over: read, stored as JSON and bytes, and written back into the same objects."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest

from stallguard.probe.checkpoint.encoding import NotPlain
from stallguard.probe.checkpoint.tracked_objects import Packed, kept, unpacked


def stored(state):
    packed = Packed()
    facts, blobs = packed.facts(packed.code(state))
    return unpacked(json.loads(json.dumps(facts)), [memoryview(bytes(one)) for one in blobs])


CHANGES = [
    ({"epoch": 1, "losses": [1.0]}, lambda one: (one["losses"].append(2.0), one.update(best=(0.5, "a")))),
    ([1, {"a": np.zeros(2)}], lambda one: one.append(np.float32(3))),
    (deque([1, 2], 2), lambda one: one.append(3)),
    ({1}, lambda one: one.add(2)),
    (defaultdict(list), lambda one: one["new"].append(1)),
    (Counter("aab"), lambda one: one.update("b")),
    (OrderedDict(a=1), lambda one: one.update(b=2)),
    (np.zeros((2, 3)), lambda one: one.fill(4.0)),
]


@pytest.mark.parametrize(("value", "change"), CHANGES, ids=lambda one: type(one).__name__)
def test_a_changed_object_gets_its_state_back_in_place(value, change):
    before = stored(kept(value).read())
    change(value)
    after = stored(kept(value).read())
    assert repr(after) != repr(before)
    kept(value).write(before)
    assert repr(value) == repr(stored(before))
    kept(value).write(after)
    assert repr(value) == repr(after)


def test_a_list_inside_a_dict_stays_the_same_list():
    log = {"losses": [1.0]}
    losses = log["losses"]
    kept(log).write(stored({"losses": [1.0, 2.0]}))
    assert losses == [1.0, 2.0]


@pytest.mark.parametrize("own", [random.Random(1), np.random.default_rng(1), {"own": np.random.default_rng(2)}])
def test_a_generator_draws_again_what_it_drew(own):
    draws = own["own"].random if isinstance(own, dict) else own.random
    before = stored(kept(own).read())
    drawn = [draws() for _ in range(3)]
    kept(own).write(before)
    assert [draws() for _ in range(3)] == drawn


def test_an_object_with_state_dict_is_asked_for_it():
    class Own:
        value = 3

        def state_dict(self):
            return {"value": self.value}

        def load_state_dict(self, state):
            self.value = state["value"]

    own = Own()
    before = stored(kept(own).read())
    own.value = 4
    kept(own).write(before)
    assert own.value == 3


@pytest.mark.parametrize("value", [3, "a", (1, 2), None, object(), print])
def test_what_has_no_state_that_can_be_written_back_is_refused(value):
    with pytest.raises(TypeError):
        kept(value)


def test_an_array_of_another_shape_does_not_fit():
    assert not kept(np.zeros(2)).fits(np.zeros(3))
    assert kept(np.zeros(2)).fits(np.ones(2))


def test_a_value_that_has_no_plain_form_is_refused():
    with pytest.raises(NotPlain):
        Packed(dry=True).code({"handle": object()})

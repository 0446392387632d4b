"""Plain objects that a script hands over: read, stored as JSON and bytes, and written back into the same objects."""

from __future__ import annotations

import json
import random
from collections import Counter, OrderedDict, defaultdict, deque

import numpy as np
import pytest

from stallguard.probe.checkpoint.encoding import NotPlain
from stallguard.probe.checkpoint.tracked_objects import Filling, Packed, kept, unpacked


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


def shared_from_the_start():
    held = [0]
    return {"a": held, "b": [held, held], "rows": [[0]] * 3, "queue": deque([held]), "pair": (held, 1)}


def array_of_objects():
    held = [0]
    return {"array": np.array([held, None], object), "held": held}


def separated(one):
    one["rows"][1] = [7]


def joined(one):
    one["b"] = [one["rows"][0], one["rows"][0]]


def moved(one):
    one["array"][1] = one["held"]
    one["held"].append(3)


SHARED = [
    (shared_from_the_start, lambda one: one["a"].append(2)), (shared_from_the_start, separated),
    (shared_from_the_start, joined), (array_of_objects, lambda one: one["held"].append(2)), (array_of_objects, moved),
]  # fmt: skip


def same(value):
    """Return which places of a value have one object, by the first of these places."""
    first: dict[int, str] = {}

    def look(one, path):
        if isinstance(one, (list, tuple, deque, dict, np.ndarray)):
            yield path, first.setdefault(id(one), path) if not isinstance(one, tuple) else ""
            pairs = one.items() if isinstance(one, dict) else enumerate(one)
            for name, part in pairs:
                yield from look(part, f"{path}/{name}")

    return list(look(value, ""))


@pytest.mark.parametrize(("made", "change"), SHARED)
def test_what_was_one_object_in_two_places_is_one_after_the_resume_and_nothing_else_is(made, change):
    trained, resumed = made(), made()
    change(trained)
    state = stored(kept(trained).read())
    kept(resumed).write(state)
    assert (repr(resumed), same(resumed)) == (repr(trained), same(trained))


def test_an_object_that_the_script_names_too_stays_that_one():
    resumed = array_of_objects()
    held = resumed["held"]
    trained = array_of_objects()
    trained["held"].append(5)
    kept(resumed).write(stored(kept(trained).read()))
    assert resumed["array"][0] is resumed["held"] is held


def test_objects_that_are_handed_over_apart_can_hold_the_same_one():
    def made():
        held = [0]
        return {"held": held}, [held, [1]]

    trained, resumed = made(), made()
    trained[1][1] = trained[0]["held"]
    trained[0]["held"].append(4)
    filling = Filling()
    for one, state in zip(resumed, stored([kept(one).read() for one in trained]), strict=True):
        kept(one).write(state, filling)
    assert resumed[1] == [[0, 4], [0, 4]]
    assert resumed[1][0] is resumed[1][1] is resumed[0]["held"]


def test_a_container_that_contains_itself_is_refused():
    one = {"rows": [1]}
    one["rows"].append(one)
    with pytest.raises(NotPlain, match="a dict that contains itself"):
        Packed(dry=True).code(kept(one).read())

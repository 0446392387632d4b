"""Random generators go on where they were, the global ones and those that are objects."""

# ruff: noqa: NPY002 - the generator that scripts use

from __future__ import annotations

import random

import numpy as np
import pytest

from stallguard.probe.checkpoint import random_state
from tests.probe.checkpoint.test_encoding import through_json


@pytest.mark.parametrize("make", [random.Random, np.random.default_rng, np.random.RandomState])
@pytest.mark.parametrize("exists", [False, True])
def test_a_generator_draws_on_where_the_other_was(make, exists):
    one, held = make(3), make(7) if exists else None
    one.random()
    back = through_json(one, held)
    assert (back is held) == exists
    assert back.random() == one.random()


def test_the_generators_go_on_where_they_were():
    random.seed(1)
    np.random.seed(1)
    states = through_json(random_state.capture())
    wanted = random.random(), np.random.rand()
    random.random()
    np.random.rand(5)
    random_state.restore(states)
    assert (random.random(), np.random.rand()) == wanted


def test_a_generator_that_moved_is_distinguished_from_one_that_did_not():
    before = random_state.capture()
    np.random.rand()
    after = random_state.capture()
    assert random_state.same(before, after, "python")
    assert not random_state.same(before, after, "numpy")

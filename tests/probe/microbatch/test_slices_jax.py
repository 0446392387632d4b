"""Slices of Keras 3 on JAX: the same as the whole batch, or the whole batch."""

from __future__ import annotations

import pytest

from tests.probe.microbatch.test_slices_tf import agree_elsewhere
from tests.probe.microbatch.test_training_in_slices import ELSEWHERE, differing, trained

pytestmark = pytest.mark.tf


def test_slices_train_the_same(servers, other_python):
    cases = [*ELSEWHERE, "strides"]
    rows, _ = trained(servers, other_python("jax"), 4, cases, KERAS_BACKEND="jax")
    assert differing(rows, cases) == {}


def test_slices_are_used_only_if_they_are_the_same(servers, other_python):
    agree_elsewhere(servers, other_python("jax"), "jax", ["spectral", "stateful"])

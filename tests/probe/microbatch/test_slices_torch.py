"""Slices of Keras 3 on torch: the same as the whole batch, or the whole batch."""

from __future__ import annotations

import pytest

from tests.probe.microbatch.test_slices_tf import WHOLE_IN_KERAS3, agree_elsewhere
from tests.probe.microbatch.test_training_in_slices import ELSEWHERE, differing, trained

pytestmark = pytest.mark.tf


def test_slices_train_the_same(servers, other_python):
    cases = ELSEWHERE
    rows, _ = trained(servers, other_python("torch"), 4, cases, KERAS_BACKEND="torch")
    assert differing(rows, cases) == {}


def test_slices_are_used_only_if_they_are_the_same(servers, other_python):
    agree_elsewhere(servers, other_python("torch"), "torch", list(WHOLE_IN_KERAS3))

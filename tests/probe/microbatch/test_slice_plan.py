"""How a batch is cut: every sample once, at most `factor` slices of one size and a first one that is no larger."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe.microbatch import slice_plan


@given(batch=st.integers(1, 5000), factor=st.integers(1, 600))
def test_the_slices_are_the_batch(batch, factor):
    first, size, others = slice_plan.plan(batch, factor)
    assert first + size * others == batch
    assert 1 <= first <= size
    assert others + 1 <= max(1, factor)


@given(batch=st.integers(1, 500), factor=st.integers(1, 2000))
def test_a_factor_beyond_the_batch_makes_slices_of_one_sample(batch, factor):
    _, size, _ = slice_plan.plan(batch, max(factor, batch))
    assert size == 1


def test_a_slice_is_current_in_its_own_thread_only():
    seen = []
    with slice_plan.slicing(2, 8) as slice_:
        other = threading.Thread(target=lambda: seen.append(slice_plan.current()))
        other.start()
        other.join()
        assert slice_plan.current() is slice_
    assert seen == [None]
    assert slice_plan.current() is None


def test_one_masked_loss_has_its_own_divisor_and_two_have_none_in_common():
    slice_ = slice_plan.Slice(2, 8)
    slice_.losses, slice_.divisors = 1, [5]
    assert slice_.divisor == 5
    assert not slice_.uneven
    slice_.losses = 2
    assert slice_.divisor is None
    assert slice_.uneven

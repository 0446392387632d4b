"""A held optimizer applies nothing, and is itself again afterwards."""

from __future__ import annotations

from stallguard.probe.microbatch.deferred_update import HeldUpdate, shadowed


class Optimizer:
    def apply_gradients(self, pairs):
        raise AssertionError("applied")


def test_a_held_optimizer_applies_nothing_and_is_itself_again_afterwards():
    optimizer, held = Optimizer(), HeldUpdate(None)
    with shadowed(optimizer, {"apply_gradients": held.apply_gradients}):
        optimizer.apply_gradients(zip([1, 2], "ab", strict=True))
    assert (held.gradients, held.variables) == ([1, 2], ["a", "b"])
    assert vars(optimizer) == {}


def test_what_an_instance_had_of_its_own_comes_back():
    optimizer, mine = Optimizer(), object()
    optimizer.apply_gradients = mine
    with shadowed(optimizer, {"apply_gradients": HeldUpdate(None).apply_gradients}):
        pass
    assert optimizer.apply_gradients is mine

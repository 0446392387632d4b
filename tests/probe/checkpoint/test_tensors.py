"""A fingerprint distinguishes one batch from another; values are finite unless one is not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from stallguard.probe.checkpoint import tensors

BATCH = {"x": np.arange(60.0).reshape(6, 10), "y": (np.ones(6), np.array([b"a", "b"], object))}


def test_equal_batches_have_equal_fingerprints():
    copy = {"x": BATCH["x"].copy(), "y": (np.ones(6), np.array([b"a", "b"], object))}
    assert tensors.fingerprint_of(copy) == tensors.fingerprint_of(BATCH)


@pytest.mark.parametrize(
    "other",
    [
        {**BATCH, "x": BATCH["x"][::-1]},
        {**BATCH, "x": BATCH["x"].astype("float32")},
        {**BATCH, "x": BATCH["x"][:5]},
        {**BATCH, "y": (np.ones(6), np.array([b"a", "c"], object))},
        {**BATCH, "z": np.ones(1)},
    ],
    ids=["order", "type", "rows", "text", "one more"],
)
def test_others_have_others(other):
    assert tensors.fingerprints_differ(tensors.fingerprint_of(BATCH), tensors.fingerprint_of(other), drawn=False)


def test_an_augmentation_that_nothing_can_repeat_is_distinguished_from_another_order():
    one = tensors.fingerprint_of((np.array([1.0, 2.0]), np.array([3, 4])))
    augmented = tensors.fingerprint_of((np.array([1.5, 2.5]), np.array([3, 4])))
    reordered = tensors.fingerprint_of((np.array([2.5, 1.5]), np.array([4, 3])))
    assert tensors.fingerprints_differ(one, augmented, drawn=False)
    assert not tensors.fingerprints_differ(one, augmented, drawn=True)
    assert tensors.fingerprints_differ(one, reordered, drawn=True)
    assert tensors.fingerprints_differ(one, tensors.END, drawn=True)


@pytest.mark.parametrize(
    ("values", "dtype", "trained", "other"),
    [
        ([1.0, 2.0], "float32", True, True), ([1.0, "nan"], "float32", False, False),
        ([1.0, "-inf"], "float32", False, True), ([3e38, 3e38], "float32", True, True),
        ([60000.0, 60000.0], "float16", True, True), ([1, 2], "int64", True, True),
    ],
)  # fmt: skip
def test_values_are_finite_unless_one_is_not(values, dtype, trained, other):
    array = np.array([float(value) if isinstance(value, str) else value for value in values]).astype(dtype)
    assert tensors.is_finite(array) == trained
    assert tensors.is_finite(array, infinite=True) == other


class OfTorch:
    """A tensor of torch in the memory of a device; `cpu` returns itself if it lies in that of the processor."""

    dtype = "torch.float32"

    def __init__(self, values, device):
        self.values, self.device = values, SimpleNamespace(type=device)
        self.detach = self.resolve_conj = self.resolve_neg = lambda: self
        self.cpu = lambda: self if device == "cpu" else OfTorch(values.copy(), "cpu")
        self.numpy = lambda: self.values


class OfJax:
    """An array of JAX; `values`: what `__array__` returns, without a copy if it lies in the processor's memory."""

    def __init__(self, values, device):
        self.read = values if device == "cpu" else values.copy()
        self.devices = lambda: [SimpleNamespace(platform=device)]

    def __array__(self, dtype=None, copy=None):
        return self.read.copy() if copy else self.read


@pytest.mark.parametrize("kind", [OfTorch, OfJax])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_a_value_that_is_kept_is_copied_once(kind, device):
    """A copy of what was copied from a GPU doubles the time for which a checkpoint stops the training."""
    values = np.arange(4.0)
    one = kind(values, device)
    kept = tensors.value_of(one, keep=True)
    assert kept.tolist() == values.tolist()
    assert not np.shares_memory(kept, values)
    if kind is OfJax:
        assert np.shares_memory(kept, one.read) == (device != "cpu")


def test_a_value_of_torch_that_is_kept_is_not_copied_after_it_left_the_gpu():
    one = OfTorch(np.arange(4.0), "cuda")
    left = one.cpu()
    one.cpu = lambda: left
    assert np.shares_memory(tensors.value_of(one, keep=True), left.values)

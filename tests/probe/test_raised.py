"""Errors of a device are reported also if the script catches them; its own traceback stays as it is."""

from __future__ import annotations

import pytest

from tests.probe.receiver import Receiver, python

TORCH = """
import time, torch
begun = time.monotonic()
while time.monotonic() < begun + 2.5:
    try:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\\nSearch for `x'")
    except RuntimeError as error:
        assert str(error).endswith("Search for `x'") and error.args
    time.sleep(0.01)
try:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
except RuntimeError:
    pass
raise torch.AcceleratorError("CUDA error: device-side assert triggered")
"""
# An error that JAX itself makes, about memory, and one as it comes from a device.
JAX = """
import jax, jax.numpy as jnp
try:
    jnp.zeros((1 << 45,)).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    assert "RESOURCE_EXHAUSTED" in str(error)
try:
    raise jax.errors.JaxRuntimeError("INTERNAL: CUDA error: : CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access")
except RuntimeError:
    pass
"""


def raised(done):
    return [note["facts"] for note in done.notes if note["kind"] == "raised"]


@pytest.mark.waits
def test_errors_of_torch_that_a_script_catches_are_counted(other_python):
    with Receiver() as receiver:
        done = receiver.run(python(TORCH, other_python("torch")), 120)
    first, second = raised(done)
    assert first == {"error": "CUDA error: an illegal memory access was encountered", "count": "1"}
    assert int(second["count"]) > 20
    assert done.code == 1
    frames = [line for line in done.err.splitlines() if line.startswith("  File")]
    assert len(frames) == 1, done.err
    assert done.err.splitlines()[-1] == "torch.AcceleratorError: CUDA error: device-side assert triggered"


def test_errors_of_jax_that_a_script_catches_are_counted(other_python):
    with Receiver() as receiver:
        done = receiver.run(python(JAX, other_python("jax")), 120)
    assert done.code == 0, done.err
    [facts] = raised(done)
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in facts["error"]

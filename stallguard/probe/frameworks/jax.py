"""JAX: Keras trains on it with the loop of its own (keras.py); a loop of the script counts by stallguard.beat()."""

from __future__ import annotations

import sys

from ..libraries import Library
from ..raised import RaisedErrors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context, Targets


def targets(context: Context) -> Targets:
    """Return the module that defines the error of a device."""
    return {"jax.errors": lambda module: RaisedErrors(context).watch(getattr(module, "JaxRuntimeError", None))}


def is_key(value: Any) -> bool:
    """Return whether a value is a key of jax.random, which has a type of its own."""
    return type(value).__name__ == "PRNGKeyArray" and type(value).__module__.startswith("jax.")


def data_of_key(key: Any) -> tuple[str, Any]:
    """Return (its kind, its numbers as an array) of a key."""
    random = sys.modules["jax"].random
    return str(random.key_impl(key)), sys.modules["numpy"].asarray(random.key_data(key))


def key_of(kind: str, data: Any) -> Any:
    """Return the key that `data_of_key` read."""
    return sys.modules["jax"].random.wrap_key_data(data, impl=kind)


def is_on_gpu(value: Any) -> bool:
    """Return whether a value is an array of JAX in the memory of a GPU: reading it makes a copy."""
    devices = getattr(value, "devices", None)
    return callable(devices) and all(one.platform != "cpu" for one in devices())


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "__array__") and hasattr(value, "shape") and not is_key(value)


def _tensor_of(array: Any, _existing: Any) -> Any:
    return sys.modules["jax"].numpy.asarray(array)


def _has_peers() -> bool:
    distributed = sys.modules.get("jax._src.distributed")
    return distributed is not None and (distributed.global_state.num_processes or 1) > 1


LIBRARY = Library(
    "jax",
    trains=True,
    packages=("jax", "jaxlib"),
    companions=("flax", "optax"),
    hooks=(targets,),
    array_waits=(
        "block_until_ready",
        "batched_block_until_ready",
        "item",
        "tolist",
        "device_get",
        "__array__",
        "_value",
        "_single_device_array_to_np_array_did_copy",
    ),
    has_peers=_has_peers,
    stateless=("Device",),
    is_tensor=_is_tensor,
    is_fixed=True,
    distributions=("jax", "jaxlib", "jax-metal", "jax-mps"),
    runs_keras=True,
    tensor_of=_tensor_of,
)

"""What `stallguard.track` keeps of MLX: modules, optimizers, and arrays as their bytes.

Arrays of MLX do not change; the containers that hold them do.  They are filled in place, because a compiled step refers
to them (`mx.compile(step, inputs=[model.state, optimizer.state, mx.random.state])`).
"""

from __future__ import annotations

import sys
from typing import Any

_PLAIN = (bool, int, float, str)


def is_tensor(value: Any) -> bool:
    """Return whether a value is an array of MLX."""
    core = sys.modules.get("mlx.core")
    return core is not None and isinstance(value, core.array)


def kept(value: Any) -> Any:
    """Return how a module or an optimizer is kept (tracked_objects.Kept), None for any other object."""
    optimizers = sys.modules.get("mlx.optimizers")
    if is_module(value):
        return ModuleState(value)
    return OptimizerState(value) if optimizers is not None and isinstance(value, optimizers.Optimizer) else None


def content(array: Any, dry: bool) -> tuple[dict[str, Any], Any]:
    """Return facts of an array and its bytes (none if `dry`)."""
    core = sys.modules["mlx.core"]
    facts = {"type": str(array.dtype).rpartition(".")[2], "shape": list(array.shape)}
    if dry or not array.size:
        return facts, b""
    return facts, memoryview(core.contiguous(array).reshape(-1).view(core.uint8)).cast("B")


def made(facts: dict[str, Any], blob: Any) -> Any:
    """Return the array that `content` read."""
    core = sys.modules["mlx.core"]
    dtype = getattr(core, facts["type"] + ("_" if facts["type"] == "bool" else ""))
    if not isinstance(dtype, core.Dtype):
        raise TypeError("%r names no type" % (facts["type"],))
    if not len(blob):
        return core.zeros(facts["shape"], dtype)
    return core.array(memoryview(bytes(blob))).view(dtype).reshape(facts["shape"])


def is_module(value: Any) -> bool:
    """Return whether a value is a module of MLX."""
    base = sys.modules.get("mlx.nn.layers.base")
    return base is not None and isinstance(value, base.Module)


def names_of_module() -> set[str]:
    """Return the attributes that MLX gives each module, beside its arrays."""
    return {"_no_grad", "_training"}


def is_all_arrays(value: Any) -> bool:
    """Return whether a value is an array of MLX, a module, or a container of nothing else.

    One that is empty, or of a class of the script's, can have other state, now or later.
    """
    if is_tensor(value) or is_module(value):
        return True
    if type(value) in (dict, list, tuple) and value:
        return all(map(is_all_arrays, value.values() if isinstance(value, dict) else value))
    return False


def arrays_of(value: Any) -> Any:
    """Return the arrays of nested containers as plain dicts and lists, an empty dict for what holds none."""
    if isinstance(value, dict):
        return {key: arrays_of(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [arrays_of(one) for one in value]
    return value if is_tensor(value) else {}


def fill(existing: Any, state: Any) -> Any:
    """Return `existing` with the arrays of `state`, which `arrays_of` returned."""
    if isinstance(existing, dict):
        for key, one in state.items():
            existing[key] = fill(existing.get(key), one)
        return existing
    if isinstance(existing, list):
        existing[:] = [fill(old, one) for old, one in zip(existing + [None] * len(state), state)]
        return existing
    if isinstance(existing, tuple):
        return tuple(fill(old, one) for old, one in zip(existing, state))
    return state if is_tensor(state) or existing is None else existing


def shapes_of(tree: Any) -> Any:
    """Return the shapes of the arrays of `arrays_of`."""
    if isinstance(tree, dict):
        return {key: shapes_of(one) for key, one in tree.items()}
    # Not the types: a training in bfloat16 can replace an array by one of float32.
    return [shapes_of(one) for one in tree] if isinstance(tree, list) else tuple(tree.shape)


class ModuleState:
    """Of a mlx.nn.Module."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def read(self) -> dict[str, Any]:
        """Return its arrays, also those that are no parameters, what its parts have in attributes, what is frozen."""
        parts = dict(self._module.named_modules())
        plain = {name: {key: one for key, one in vars(part).items() if type(one) in _PLAIN}
                 for name, part in parts.items()}  # fmt: skip
        frozen = {name: sorted(part._no_grad) for name, part in parts.items()}
        return {"arrays": arrays_of(self._module), "attributes": plain, "frozen": frozen}

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is one of such a module."""
        return bool(shapes_of(arrays_of(self._module)) == shapes_of(state["arrays"]))

    def write(self, state: dict[str, Any]) -> None:
        """Write a state into it."""
        fill(self._module, state["arrays"])
        for name, part in self._module.named_modules():
            vars(part).update(state["attributes"][name])
            part._no_grad.clear()
            part._no_grad.update(state["frozen"][name])


class OptimizerState:
    """Of a mlx.optimizers.Optimizer, or of those that a MultiOptimizer has."""

    def __init__(self, optimizer: Any) -> None:
        self._several = getattr(optimizer, "optimizers", None) or [optimizer]

    def read(self) -> list[dict[str, Any]]:
        """Return the state of each."""
        return [{"state": arrays_of(one.state), "initialized": bool(one._initialized)} for one in self._several]

    def fits(self, state: list[dict[str, Any]]) -> bool:
        """Return whether a state is one of such optimizers."""
        return len(state) == len(self._several)

    def write(self, state: list[dict[str, Any]]) -> None:
        """Write a state into them."""
        for one, saved in zip(self._several, state):
            fill(one.state, saved["state"])
            one._initialized = saved["initialized"]

"""The variables of a model in training: weights, seeds, optimizer, the metrics of the running epoch.

Works on Keras 3 (any backend) and Keras 2; a variable is anything with a shape, `assign` and `numpy`.
"""

from __future__ import annotations

import sys
from typing import Any


class Unlike(Exception):
    """The saved variables are not those of this model."""


def built(model: Any) -> bool:
    """Return whether all variables of the model exist."""
    layers = getattr(model, "_flatten_layers", None)
    return bool(getattr(model, "built", False)) and all(layer.built for layer in (layers() if layers else ()))


def build_optimizer(model: Any) -> None:
    """Create the optimizer's variables, as the first step would."""
    optimizer, inner = model.optimizer, _inner(model.optimizer)
    if getattr(inner, "built", False) or getattr(inner, "_built", False):
        return
    build = getattr(optimizer, "build", None)
    legacy = getattr(optimizer, "_create_all_weights", None)  # Keras 2, what Macs fall back to
    if build is not None:
        build(model.trainable_variables)
    elif legacy is not None:
        optimizer.iterations  # noqa: B018  creates the counter, which comes first
        legacy(model.trainable_variables)


def synchronise(model: Any) -> None:
    """Bring the variables up to date where training keeps them elsewhere (JAX)."""
    bring = getattr(model, "jax_state_sync", None)
    if bring is not None and getattr(model, "_jax_state", None) is not None:
        bring()


def state(model: Any) -> list[Any]:
    """Return the variables that make training go on exactly: the model's, then the optimizer's."""
    optimizer = getattr(model, "optimizer", None)
    return _distinct(
        _listed(model, "variables") + _listed(optimizer, "variables") + _rates(_inner(optimizer))
    )


def _inner(optimizer: Any) -> Any:
    """Return the optimizer inside one that scales losses, else itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _rates(optimizer: Any) -> list[Any]:
    """Return the learning rate where it is a variable that Keras 2 does not list."""
    legacy = getattr(optimizer, "_hyper", None)
    found = (
        list(legacy.values()) if isinstance(legacy, dict) else [getattr(optimizer, "_learning_rate", None)]
    )
    return [rate for rate in found if hasattr(rate, "assign")]


def metrics(model: Any) -> list[Any]:
    """Return the accumulators of the running epoch's logs."""
    of_model = {id(variable) for variable in state(model)}
    found = [variable for metric in model.metrics for variable in metric.variables]
    return [variable for variable in _distinct(found) if id(variable) not in of_model]


def values(variables: list[Any]) -> list[Any]:
    """Return the variables' values as numpy arrays."""
    return [_value(variable) for variable in variables]


def assign(variables: list[Any], arrays: list[Any]) -> None:
    """Set all variables; raises Unlike, and sets none, where number, shape or type differ."""
    ours = [(tuple(variable.shape), _dtype(variable)) for variable in variables]
    saved = [(tuple(array.shape), array.dtype.name) for array in arrays]
    if ours != saved:
        raise Unlike("%d variables here, %d in the checkpoint, or of other shapes" % (len(ours), len(saved)))
    for variable, array in zip(variables, arrays):
        variable.assign(array)


def _listed(owner: Any, name: str) -> list[Any]:
    found = getattr(owner, name, None)
    return list(found() if callable(found) else found or ())


def _distinct(variables: list[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def _value(variable: Any) -> Any:
    numpy = sys.modules["numpy"]
    read = getattr(variable, "numpy", None)
    return numpy.asarray(read() if read else variable)


def _dtype(variable: Any) -> str:
    return str(getattr(variable.dtype, "name", variable.dtype))

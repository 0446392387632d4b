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
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not getattr(inner, "built", getattr(inner, "_built", True)) and hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)


def state(model: Any) -> list[Any]:
    """Return the variables that make training go on exactly: the model's, then the optimizer's."""
    return _distinct(_listed(model, "variables") + _listed(getattr(model, "optimizer", None), "variables"))


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

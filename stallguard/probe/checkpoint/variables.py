"""The variables of a model in training: weights, seeds, optimizer, the metrics of the running epoch.

They form groups, each with a name that is the same in the next attempt: "model", "optimizer", "metrics", and one for
each further optimizer that the walk found (object_walk.py).  For Keras 3 (any backend) and Keras 2; a variable is any
object with a shape, `assign` and `numpy`.
"""

from __future__ import annotations

from typing import Any

from . import tensors

MODEL, OPTIMIZER, METRICS, COUNTERS = "model", "optimizer", "metrics", "counters"
_COUNTERS = ("_train_counter", "_test_counter", "_predict_counter")  # of Keras 2, which does not list them
MOST = 64  # functions in the closure of a train function that are followed
Groups = dict[str, list[Any]]


class Unlike(Exception):
    """The saved variables do not fit this model; the text names the group."""


def built(model: Any) -> bool:
    """Return whether all variables of the model exist."""
    layers = getattr(model, "_flatten_layers", None)
    return bool(getattr(model, "built", False)) and all(layer.built for layer in (layers() if layers else ()))


def build_optimizer(model: Any) -> None:
    """Create the variables of the model's optimizer, as the first step does."""
    optimizer, inner = getattr(model, "optimizer", None), inner_of(getattr(model, "optimizer", None))
    if optimizer is None or getattr(inner, "built", False) or getattr(inner, "_built", False):
        return
    build = getattr(optimizer, "build", None)
    legacy = getattr(optimizer, "_create_all_weights", None)  # Keras 2, mostly on Macs
    if build is not None:
        build(model.trainable_variables)
    elif legacy is not None:
        optimizer.iterations  # noqa: B018  creates the counter, which comes first
        legacy(model.trainable_variables)


def build_optimizer_if(model: Any, saved: dict[str, list[Any]]) -> None:
    """Create the variables of the model's optimizer if the saved one had some: one that no step has used has none."""
    if len(of_optimizer(getattr(model, "optimizer", None))) != len(saved.get(OPTIMIZER, ())):
        build_optimizer(model)


def synchronise(model: Any) -> None:
    """Update the variables if training keeps their values elsewhere (JAX)."""
    bring = getattr(model, "jax_state_sync", None)
    if bring is not None and getattr(model, "_jax_state", None) is not None:
        bring()


def reset_emptied_metrics(model: Any) -> None:
    """Reset the metrics whose variables have no value: Keras on JAX takes the values of all variables as it trains.

    A loop that was broken off does not bring them back.  Each epoch resets its metrics, so nothing is lost.
    """
    if hasattr(model, "jax_state_sync"):
        for metric in model.metrics:
            if any(getattr(one, "_value", one) is None for one in metric.variables):
                metric.reset_state()


def of_model(model: Any) -> Groups:
    """Return the variables of the model and of its optimizer, which an exact resume needs."""
    optimizer = getattr(model, "optimizer", None)
    groups = {MODEL: _listed(model, "variables"), OPTIMIZER: of_optimizer(optimizer)}
    mine = {id(variable) for variable in groups[MODEL]}
    groups[OPTIMIZER] = [variable for variable in groups[OPTIMIZER] if id(variable) not in mine]
    groups[COUNTERS] = [vars(model)[name] for name in _COUNTERS if hasattr(vars(model).get(name), "assign")]
    return groups


def of_optimizer(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer, including its learning rate if that is a variable."""
    return _distinct(_listed(optimizer, "variables") + _rates(inner_of(optimizer)))


def inner_of(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper that scales losses, otherwise the optimizer itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def rate_of(optimizer: Any) -> Any:
    """Return the variable that holds an optimizer's learning rate, None if that is a schedule or there is none."""
    return next(iter(_rates(inner_of(optimizer))), None)


def _rates(optimizer: Any) -> list[Any]:
    legacy = getattr(optimizer, "_hyper", None)
    if isinstance(legacy, dict):
        found = [legacy[name] for name in sorted(legacy, key=lambda name: name != "learning_rate")]
    else:
        found = [getattr(optimizer, "_learning_rate", None)]
    return [rate for rate in found if hasattr(rate, "assign")]


def metrics(model: Any) -> list[Any]:
    """Return the accumulators of the running epoch's logs."""
    known = {id(variable) for group in of_model(model).values() for variable in group}
    found = [variable for metric in model.metrics for variable in metric.variables]
    return [variable for variable in _distinct(found) if id(variable) not in known]


def differences(groups: Groups, saved: dict[str, list[Any]]) -> str:
    """Return why `saved`, {group: arrays}, does not fit these variables; "" if it fits."""
    for name, arrays in saved.items():
        if name not in groups:
            return "there is no %s here" % name
        ours = [(tuple(variable.shape), dtype_of(variable)) for variable in groups[name]]
        theirs = [(tuple(array.shape), array.dtype.name) for array in arrays]
        if len(ours) != len(theirs):
            return "the %s has %d variables here and %d in the checkpoint" % (name, len(ours), len(theirs))
        other = next((pair for pair in zip(ours, theirs) if pair[0] != pair[1]), None)
        if other is not None:
            return "a variable of the %s is %s %s here and %s %s in the checkpoint" % (
                name, other[0][1], list(other[0][0]), other[1][1], list(other[1][0])
            )  # fmt: skip
    return ""


def assign(groups: Groups, saved: dict[str, list[Any]]) -> None:
    """Set all variables of the saved groups; raise Unlike, and set none, if they do not fit."""
    difference = differences(groups, saved)
    if difference:
        raise Unlike(difference)
    for name, arrays in saved.items():
        for variable, array in zip(groups[name], arrays):
            variable.assign(array)


def values(variables: list[Any]) -> list[Any]:
    """Return the variables' values, which do not change while training goes on."""
    return [tensors.value_of(variable, keep=True) for variable in variables]


def dtype_of(variable: Any) -> str:
    """Return numpy's name of a variable's type."""
    return str(getattr(variable.dtype, "name", variable.dtype)).rpartition(".")[2]


def _listed(owner: Any, name: str) -> list[Any]:
    try:
        found = getattr(owner, name, None)
    except ValueError:  # Keras 2, of a Sequential model, or one with a `build`, before its first batch
        return []
    return _distinct(list(found() if callable(found) else found or ()))


def _distinct(variables: list[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def lost(function: Any, known: set[int]) -> list[str]:
    """Return the names of variables that a train function's graphs use and that are not saved.  `known`: saved ids."""
    found = [one for graph in _graphs(function) for one in getattr(graph, "variables", ())]
    return sorted({str(one.name) for one in found if id(one) not in known})


def random_operations(function: Any, kinds: frozenset[str]) -> list[str]:
    """Return which of these operations a train function's graphs contain: they draw from the state of a kernel."""
    found: set[str] = set()
    for graph in [one.as_graph_def() for one in _graphs(function)]:
        nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
        found |= {node.op for node in nodes if node.op in kinds}
    return sorted(found)


def identities(variables: list[Any]) -> set[int]:
    """Return the ids of variables, of the TensorFlow variables inside Keras 3's, and of those inside a strategy's."""
    inner = [vars(one).get("_value", one) for one in variables]
    found = {id(one) for one in [*variables, *inner]}
    # Of a strategy's variable a tuple, of a torch tensor a method.
    parts = [getattr(one, "_values", None) for one in inner]
    return found | {id(part) for each in parts if isinstance(each, tuple) for part in each}


def trace(function: Any, *arguments: Any) -> bool:
    """Trace the tf.function of a train function as its first call does, without running it; return if there is one."""
    for one in _functions(function):
        get = getattr(one, "get_concrete_function", None)
        if get is not None:
            get(*arguments)
            return True
    return False


def _graphs(function: Any) -> list[Any]:
    every = "_list_all_concrete_functions_for_serialization"
    return [traced.graph for one in _functions(function) for traced in getattr(one, every, list)()]


def _functions(function: Any) -> list[Any]:
    """Return a train function and the functions in its closure: Keras 3 wraps the tf.function in a Python function."""
    found = [function]
    for one in found:
        for cell in getattr(one, "__closure__", None) or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            if callable(content) and len(found) < MOST and not any(content is known for known in found):
                found.append(content)
    return found

"""The variables of a model in training: weights, seeds, optimizer, the metrics of the running epoch.

They come in groups, each with a name that the next attempt finds again: "model", "optimizer", "metrics", and one for
each further optimizer that the walk found (walk.py).  Works on Keras 3 (any backend) and Keras 2; a variable is
anything with a shape, `assign` and `numpy`.
"""

from __future__ import annotations

from typing import Any

from . import tensors

MODEL, OPTIMIZER, METRICS, COUNTERS = "model", "optimizer", "metrics", "counters"
_COUNTERS = ("_train_counter", "_test_counter", "_predict_counter")  # of Keras 2, which does not list them
MOST = 64  # functions that a train function may close over
Groups = dict[str, list[Any]]


class Unlike(Exception):
    """The saved variables are not those of this model; the text names the group."""


def built(model: Any) -> bool:
    """Return whether all variables of the model exist."""
    layers = getattr(model, "_flatten_layers", None)
    return bool(getattr(model, "built", False)) and all(layer.built for layer in (layers() if layers else ()))


def build_optimizer(model: Any) -> None:
    """Create the variables of the model's optimizer, as the first step would."""
    optimizer, inner = getattr(model, "optimizer", None), inner_of(getattr(model, "optimizer", None))
    if optimizer is None or getattr(inner, "built", False) or getattr(inner, "_built", False):
        return
    build = getattr(optimizer, "build", None)
    legacy = getattr(optimizer, "_create_all_weights", None)  # Keras 2, what Macs fall back to
    if build is not None:
        build(model.trainable_variables)
    elif legacy is not None:
        optimizer.iterations  # noqa: B018  creates the counter, which comes first
        legacy(model.trainable_variables)


def build_optimizer_if(model: Any, saved: dict[str, list[Any]]) -> None:
    """Create the variables of the model's optimizer if those of the saved one existed.

    One that no step has used yet, such as the optimizer that a GAN leaves to `compile`, stays as it is.
    """
    if len(of_optimizer(getattr(model, "optimizer", None))) != len(saved.get(OPTIMIZER, ())):
        build_optimizer(model)


def synchronise(model: Any) -> None:
    """Bring the variables up to date if training keeps them elsewhere (JAX)."""
    bring = getattr(model, "jax_state_sync", None)
    if bring is not None and getattr(model, "_jax_state", None) is not None:
        bring()


def of_model(model: Any) -> Groups:
    """Return the variables of the model and of its optimizer: what makes training go on exactly."""
    optimizer = getattr(model, "optimizer", None)
    groups = {MODEL: _listed(model, "variables"), OPTIMIZER: of_optimizer(optimizer)}
    mine = {id(variable) for variable in groups[MODEL]}
    groups[OPTIMIZER] = [variable for variable in groups[OPTIMIZER] if id(variable) not in mine]
    groups[COUNTERS] = [vars(model)[name] for name in _COUNTERS if hasattr(vars(model).get(name), "assign")]
    return groups


def of_optimizer(optimizer: Any) -> list[Any]:
    """Return the variables of an optimizer, its learning rate among them if that is one."""
    return _distinct(_listed(optimizer, "variables") + _rates(inner_of(optimizer)))


def inner_of(optimizer: Any) -> Any:
    """Return the optimizer inside one that scales losses, else itself."""
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
    """Return what keeps `saved`, {group: its arrays}, from being these variables; "" if nothing does."""
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
    """Set all variables of the saved groups; raises Unlike, and sets none, if they are others."""
    difference = differences(groups, saved)
    if difference:
        raise Unlike(difference)
    for name, arrays in saved.items():
        for variable, array in zip(groups[name], arrays):
            variable.assign(array)


def values(variables: list[Any]) -> list[Any]:
    """Return the variables' values, which stay as they are while training goes on."""
    return [tensors.value_of(variable, keep=True) for variable in variables]


def dtype_of(variable: Any) -> str:
    """Return the name of a variable's type, as numpy has it."""
    return str(getattr(variable.dtype, "name", variable.dtype)).rpartition(".")[2]


def _listed(owner: Any, name: str) -> list[Any]:
    found = getattr(owner, name, None)
    return _distinct(list(found() if callable(found) else found or ()))


def _distinct(variables: list[Any]) -> list[Any]:
    return list({id(variable): variable for variable in variables}.values())


def lost(function: Any, known: set[int]) -> list[str]:
    """Return the names of variables that a train function's graphs use and nobody looks after.  `known`: ids."""
    found: list[Any] = []
    for one in _functions(function):
        for traced in getattr(one, "_list_all_concrete_functions_for_serialization", list)():
            found += list(getattr(traced.graph, "variables", ()))
    return sorted({str(one.name) for one in found if id(one) not in known})


def random_operations(function: Any, kinds: frozenset[str]) -> list[str]:
    """Return which of these operations a train function's graphs have: what they draw has a place in a kernel."""
    found: set[str] = set()
    for one in _functions(function):
        for traced in getattr(one, "_list_all_concrete_functions_for_serialization", list)():
            graph = traced.graph.as_graph_def()
            nodes = [*graph.node, *(node for inner in graph.library.function for node in inner.node_def)]
            found |= {node.op for node in nodes if node.op in kinds}
    return sorted(found)


def identities(variables: list[Any]) -> set[int]:
    """Return the ids of variables, and of those of TensorFlow's that Keras 3 keeps inside its own."""
    return {id(inner) for one in variables for inner in (one, vars(one).get("_value", one))}


def trace(function: Any, *arguments: Any) -> bool:
    """Trace the tf.function below a train function as its first call would, and run nothing; whether there is one."""
    for one in _functions(function):
        get = getattr(one, "get_concrete_function", None)
        if get is not None:
            get(*arguments)
            return True
    return False


def _functions(function: Any) -> list[Any]:
    """Return a train function and what it closes over: Keras 3 wraps the tf.function in a function of Python's."""
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

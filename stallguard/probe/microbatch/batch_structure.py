"""The properties of a batch and a model that are known without computing: rows, fixed sizes, relevant layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import libraries

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = ("input", "target", "sample weight")  # of the tuple that a step gets


def leaves(data: Any) -> list[tuple[str, Any]]:
    """Return (name, leaf) of everything in a batch; the name is the key in a dict, otherwise its position."""
    if isinstance(data, tuple) and not hasattr(data, "_fields") and 0 < len(data) <= len(PARTS):
        return [pair for part, name in zip(data, PARTS) for pair in _named(part, name)]
    return list(_named(data, PARTS[0]))


def _named(part: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(part, dict):
        for key, value in part.items():
            yield from _named(value, str(key))
    elif isinstance(part, (list, tuple)):
        for place, value in enumerate(part):
            yield from _named(value, "%s %d" % (name, place + 1) if len(part) > 1 else name)
    elif part is not None:
        yield name, part


def obstacle(rows: list[tuple[str, Any]]) -> str:
    """Return why a batch with these (name, rows) cannot be sliced; "" if it can.

    Rows are a number, None for a leaf without a first dimension, and any other value if only the graph knows them.
    """
    if not rows:
        return "they contain no arrays"
    for name, count in rows:
        if count is None:
            return "%r is a single number" % name
    known = [(name, count) for name, count in rows if isinstance(count, int)]
    counts = [count for _, count in known]
    batch = max(counts, key=lambda count: (counts.count(count), -count), default=0)
    for name, count in known:
        if count != batch:
            return "%r has %d rows, the batch %d" % (name, count, batch)
    return ""


def fixed_size(model: Any) -> int:
    """Return the batch size that the model's inputs prescribe, 0 if they prescribe none."""
    try:
        found = list(getattr(model, "inputs", None) or ())
    except Exception:  # a model that is not built yet
        return 0
    sizes = [shape[0] for shape in (getattr(one, "shape", None) for one in found) if shape]
    return next((int(size) for size in sizes if size is not None), 0)


def layers(model: Any) -> list[Any]:
    """Return the model's layers, including nested ones."""
    flatten = getattr(model, "_flatten_layers", None)
    return list(flatten(include_self=False)) if flatten else []


def is_built(model: Any) -> bool:
    """Whether all variables of the model exist."""
    return bool(getattr(model, "built", False)) and all(getattr(layer, "built", True) for layer in layers(model))


def stateful(model: Any) -> str:
    """Return the name of a layer that keeps its state from one batch to the next, "" if there is none."""
    marks = ("cell", "forward_layer", "return_sequences")  # of a recurrent layer
    for layer in layers(model):
        if any(hasattr(layer, mark) for mark in marks) and getattr(layer, "stateful", False) is True:
            return str(layer.name)
    return ""


def normalisations(model: Any) -> list[Any]:
    """Return the layers of Keras that compute statistics over the batch in training."""

    def is_one(kind: type) -> bool:
        return "BatchNormalization" in kind.__name__ and libraries.of_class(kind) is not None

    return [layer for layer in layers(model) if any(map(is_one, type(layer).__mro__))]


def is_half(model: Any) -> bool:
    """Whether some layer computes in 16 bits."""
    return any("16" in str(getattr(layer, "compute_dtype", "")) for layer in layers(model))


def is_own(model: Any) -> bool:
    """Return whether the `train_step` of `model` is the script's, or a library's on top of Keras."""
    return libraries.of(getattr(model.train_step, "__module__", "").partition(".")[0]) is None


def reaches(model: Any) -> bool:
    """Return whether the `train_step` of `model` is, or calls, the framework's."""
    code = getattr(model.train_step, "__code__", None)
    return not is_own(model) or "train_step" in getattr(code, "co_names", ())


def fresh_logs(model: Any, logs: Any) -> Any:
    """Return the logs of a slice with the metrics read again, which are then those of the whole batch."""
    if not isinstance(logs, dict):
        return logs
    read = getattr(model, "get_metrics_result", None)
    fresh = read() if read else {metric.name: metric.result() for metric in model.metrics}
    return {name: fresh.get(name, value) for name, value in logs.items()}

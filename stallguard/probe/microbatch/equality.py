"""Decides whether a few rows gave the same result as one batch and in slices.  Pure arithmetic on arrays.

Equal within rounding means: the two gradients of each variable differ by at most a fraction of their own size, or by an
amount that is negligible beside all gradients (the bias of an attention's keys has a gradient of zero, computed as
noise).  The fraction is 1e-4 in float32.  Measured on a CPU: 5e-6 and less in deep networks, but 3.6e-5 for the bias
of a convolution, whose gradient is a sum over each pixel of each row.  A device can compute the same row differently in
a smaller batch (other kernels, TF32): the difference between the model's outputs for the same rows then shows how much
of a difference comes from the device.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

FLOAT, HALF = 1e-5, 1e-2  # relative, for float32 and for float16 or bfloat16
FLOORS = {FLOAT: 1e-7, HALF: 1e-3}  # relative to all gradients together
MOST = 1e-3  # at most, even if a device's outputs differ more
AMPLIFIED = 10.0  # how much more a gradient can differ than the outputs that it is computed from
SUMMED = 10.0  # and than a loss or a state: it is a sum of many more numbers
OTHERWISE = "its gradients in slices are not those of a whole batch (%r)"
LOGGED = 1e-4  # relative; a metric is a mean of rounded numbers


class StepOutcome(NamedTuple):
    """The result of training some rows, before any update.  Arrays are numpy's.

    `losses`: of the slices.  `gradients`: an array for each variable, or (values, indices) of an embedding's rows, or
    None.  `outputs`: the model's, joined over the slices.  `state`: the variables that changed without an update, by
    their paths; no metrics, no seeds.
    """

    loss: Optional[float]
    losses: list[float]
    gradients: list[Any]
    outputs: list[Any]
    logs: dict[str, float]
    state: dict[str, Any]


def is_finite(outcome: StepOutcome) -> bool:
    """Return whether loss and gradients are finite."""
    numpy = _numpy()
    parts = [_dense(gradient) for gradient in outcome.gradients if gradient is not None]
    return all(bool(numpy.isfinite(part).all()) for part in [*parts, numpy.asarray(outcome.loss or 0.0)])


def is_zero(outcome: StepOutcome) -> bool:
    """Return whether all gradients are zero or missing."""
    return not any(g is not None and _dense(g).any() for g in outcome.gradients)


def difference(whole: StepOutcome, sliced: StepOutcome, names: list[str], *, half: bool) -> str:
    """Return why the slices are not equivalent to the whole batch; "" if they are.

    `names`: of the variables.  `half`: whether the model computes in 16 bits.
    """
    part = HALF if half else min(MOST, max(FLOAT, AMPLIFIED * _apart(whole.outputs, sliced.outputs)))
    layers = changed_otherwise(whole.state, sliced.state, part)
    summed = part if half else min(MOST, SUMMED * part)
    worst, name = _worst(whole.gradients, sliced.gradients, names, summed, FLOORS[HALF if half else FLOAT])
    if worst <= 1.0 and _same_loss(whole, sliced, part):
        return "the layer %r keeps state that slices change" % layers[0] if layers else ""
    if layers:
        return "the layer %r keeps state from one slice to the next" % layers[0]
    if whole.loss is None or sliced.loss is None or _same_loss(whole, sliced, part):
        return OTHERWISE % name.partition(":")[0]
    if _near(whole.loss, sum(sliced.losses), sliced.losses, part):
        return "the loss adds up over the batch"
    said = "the loss of a batch is not the mean over its rows (%.4g for some rows at once, %.4g in slices)"
    return said % (whole.loss, sliced.loss)


def unlike_logs(whole: StepOutcome, sliced: StepOutcome) -> list[str]:
    """Return the names of metrics that slices change, other than the loss."""
    numpy = _numpy()
    return [
        name
        for name, value in whole.logs.items()
        if name != "loss"
        and not numpy.isclose(sliced.logs.get(name, value), value, LOGGED, 1e-6, equal_nan=True)
    ]


def changed_otherwise(one: dict[str, Any], other: dict[str, Any], part: float) -> list[str]:
    """Return the owners ("layer" of "layer/variable") of the variables that differ."""
    numpy = _numpy()
    return [
        name.rpartition("/")[0].rpartition("/")[2] or name
        for name in {**one, **other}
        if name not in one
        or name not in other
        or not numpy.allclose(_plain(one[name]), _plain(other[name]), part, 1e-7, equal_nan=True)
    ]


def _same_loss(whole: StepOutcome, sliced: StepOutcome, part: float) -> bool:
    if whole.loss is None or sliced.loss is None:
        return whole.loss is sliced.loss
    return _near(whole.loss, sliced.loss, sliced.losses, part)


def _near(one: float, other: float, parts: list[float], part: float) -> bool:
    return abs(one - other) <= part * max(abs(one), *map(abs, parts), 1e-7)


def _worst(
    ones: list[Any], others: list[Any], names: list[str], part: float, floor: float
) -> tuple[float, str]:
    """Return the largest difference of a variable's gradients, relative to the limit, and the variable's name."""
    numpy = _numpy()
    every = float(numpy.sqrt(sum(_norm(_dense(g)) ** 2 for g in ones if g is not None)))
    found = (0.0, "")
    for one, other, name in zip(ones, others, names):
        if one is None and other is None:
            continue
        apart, size = _distance(one, other)
        found = max(found, (apart / (part * size + floor * every + 1e-30), name))
    if len(ones) != len(others):
        return float("inf"), names[0] if names else ""
    return found


def _distance(one: Any, other: Any) -> tuple[float, float]:
    """Return the distance of two gradients, and the size of the first."""
    numpy = _numpy()
    if one is None or other is None:
        given = _dense(other if one is None else one)
        return _norm(given), 0.0
    if isinstance(one, tuple) or isinstance(other, tuple):
        # Of the rows of an embedding that are in either, each row once.
        pairs = [
            pair if isinstance(pair, tuple) else (pair, numpy.arange(len(pair))) for pair in (one, other)
        ]
        every = numpy.unique(numpy.concatenate([indices for _, indices in pairs]))
        one, other = (numpy.zeros((len(every), *values.shape[1:])) for values, _ in pairs)
        for rows, (values, indices) in zip((one, other), pairs):
            numpy.add.at(rows, numpy.searchsorted(every, indices), _plain(values))
    one, other = _plain(one), _plain(other)
    if one.shape != other.shape:
        return float("inf"), 0.0
    return _norm(one - other), _norm(one)


def _apart(ones: list[Any], others: list[Any]) -> float:
    """Return the distance of the outputs for the same rows, relative to their size; 0 if that is not known."""
    numpy = _numpy()
    found = 0.0
    for one, other in zip(map(_plain, ones), map(_plain, others)):
        if (
            one.shape == other.shape
            and one.size
            and numpy.isfinite(one).all()
            and numpy.isfinite(other).all()
        ):
            found = max(found, _norm(one - other) / (_norm(one) + 1e-30))
    return found


def _dense(gradient: Any) -> Any:
    return _plain(gradient[0] if isinstance(gradient, tuple) else gradient)


def _plain(value: Any) -> Any:
    """Return an array of a type that numpy can compute with, unlike bfloat16."""
    value = _numpy().asarray(value)
    return value if value.dtype.name in ("float32", "float64") else value.astype("float64")


def _norm(value: Any) -> float:
    return float(_numpy().linalg.norm(value.ravel()))


def _numpy() -> Any:
    return sys.modules["numpy"]

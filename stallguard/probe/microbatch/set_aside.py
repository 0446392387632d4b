"""What changes on every framework while rows are compared: batch normalisation; and a record of the outputs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import batch_structure

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running_statistics(model: Any) -> Iterator[None]:
    """Have batch normalisation use its running statistics, and not update them, during the body."""
    layers = batch_structure.normalisations(model)
    for layer in layers:
        vars(layer)["call"] = _in_inference(layer.call)
    try:
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)


def _in_inference(original: Any) -> Any:
    def call(inputs: Any, *_: Any, **named: Any) -> Any:
        return original(inputs, **{**named, "training": False})

    return call


@contextmanager
def outputs_kept(model: Any) -> Iterator[list[Any]]:
    """Record the model's outputs for each loss that is computed in the body."""
    kept: list[Any] = []
    original = getattr(model, "compute_loss", None)

    def compute_loss(*args: Any, **named: Any) -> Any:
        kept.append(named["y_pred"] if "y_pred" in named else args[2])
        return original(*args, **named)  # type: ignore[misc]

    own = vars(model)
    before = own.get("compute_loss")
    if original is not None:
        own["compute_loss"] = compute_loss
    try:
        yield kept
    finally:
        own.pop("compute_loss", None)
        if before is not None:
            own["compute_loss"] = before

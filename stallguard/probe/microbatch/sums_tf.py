"""Adds up slices on TensorFlow: their shares, their losses, and their gradients in the optimizer's form.

A dense gradient is a one-tuple of its weighted sum.  An embedding's gradient (`tf.IndexedSlices`) stays
(values, indices) of all slices one after the other: Keras 3's optimizers do not merge repeated rows, and Adam squares
each separately, so a dense sum would train differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .deferred_update import HeldUpdate
    from .slice_plan import Slice

Part = tuple[Any, ...]


class Sums(NamedTuple):
    """Sums over slices; a loop variable of `tf.while_loop`."""

    share: Any  # of the batch; 1.0 after all slices if the loss is a plain mean
    loss: Any  # times share
    gradients: list[Part]  # times share, those that are not None


def share_of(tf: Any, piece: Slice) -> Any:
    """Return the slice's share of the batch's loss."""
    own = piece.size if piece.divisor is None else piece.divisor
    return tf.cast(own, "float32") / tf.cast(piece.batch, "float32")


def of_slice(tf: Any, piece: Slice, held: HeldUpdate, dense: bool) -> Sums:
    """Return the sums of one slice; `dense`: merge an embedding's rows, because XLA cannot grow a tensor."""
    share = share_of(tf, piece)
    factor = tf.ones_like(share) if held.weighed else share
    loss = tf.constant(0.0) if held.loss is None else tf.reduce_mean(tf.cast(held.loss, "float32"))
    logged = loss * share * piece.logged
    gradients: list[Part] = []
    for gradient in held.gradients or []:
        if isinstance(gradient, tf.IndexedSlices) and not dense:
            weighted = gradient.values * tf.cast(factor, gradient.values.dtype)
            gradients.append((weighted, gradient.indices))
        elif gradient is not None:
            values = tf.convert_to_tensor(gradient)
            gradients.append((values * tf.cast(factor, values.dtype),))
    return Sums(share, logged, gradients)


def add(tf: Any, one: Sums, other: Sums) -> Sums:
    """Return the sums over both."""
    gradients = [
        (a[0] + b[0],) if len(a) == 1 else tuple(tf.concat(pair, 0) for pair in zip(a, b))
        for a, b in zip(one.gradients, other.gradients)
    ]
    return Sums(one.share + other.share, one.loss + other.loss, gradients)


def invariant(tf: Any, one: Sums) -> Sums:
    """Return the shapes that do not change while slices are added."""
    rows = tf.TensorShape([None])  # of an embedding's gradient, which each slice makes longer
    gradients = [
        (part[0].shape,) if len(part) == 1 else tuple(rows.concatenate(array.shape[1:]) for array in part)
        for part in one.gradients
    ]
    return Sums(one.share.shape, one.loss.shape, gradients)


def mean(tf: Any, sums: Sums, held: HeldUpdate) -> list[Any]:
    """Return the batch's gradients in the form of the slice's in `held`, None for a variable without one."""
    parts = iter(sums.gradients)
    found: list[Any] = []
    for gradient, variable in zip(held.gradients or [], held.variables):
        if gradient is None:
            found.append(None)
            continue
        part = next(parts)
        value = tf.math.divide_no_nan(part[0], tf.cast(sums.share, part[0].dtype))
        if len(part) > 1:
            value = tf.IndexedSlices(value, part[1], tf.constant(list(variable.shape)))
        found.append(value)
    return found

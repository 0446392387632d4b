"""Adds up slices on TensorFlow: their shares, their losses, and their gradients in the optimizer's form.

A dense gradient is a one-tuple of its weighted sum.  An embedding's gradient (`tf.IndexedSlices`) stays
(values, indices) of all slices one after the other: Keras 3's optimizers do not merge repeated rows, and Adam squares
each separately, so a dense sum would train differently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .deferred_update import Held
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


def of_slice(tf: Any, piece: Slice, held: Held, dense: bool) -> Sums:
    """Return the sums of one slice; `dense`: merge an embedding's rows, because XLA cannot grow a tensor."""
    share = share_of(tf, piece)
    factor = tf.ones_like(share) if held.weighed else share
    loss = tf.constant(0.0) if held.loss is None else tf.reduce_mean(tf.cast(held.loss, "float32"))
    gradients = [g for g in held.gradients or [] if g is not None]
    return Sums(share, loss * share * piece.logged, [_weighted(tf, g, factor, dense) for g in gradients])


def add(tf: Any, one: Sums, other: Sums) -> Sums:
    """Return the sums over both."""
    gradients = [_joined(tf, a, b) for a, b in zip(one.gradients, other.gradients)]
    return Sums(one.share + other.share, one.loss + other.loss, gradients)


def invariant(tf: Any, one: Sums) -> Sums:
    """Return the shapes that do not change while slices are added."""
    return Sums(one.share.shape, one.loss.shape, [_shapes(tf, part) for part in one.gradients])


def mean(tf: Any, sums: Sums, held: Held) -> list[Any]:
    """Return the batch's gradients in the form of the slice's in `held`, None for a variable without one."""
    parts = iter(sums.gradients)
    pairs = zip(held.gradients or [], held.variables)
    return [None if g is None else _mean(tf, next(parts), sums.share, variable) for g, variable in pairs]


def _weighted(tf: Any, gradient: Any, share: Any, dense: bool) -> Part:
    if isinstance(gradient, tf.IndexedSlices) and not dense:
        return gradient.values * tf.cast(share, gradient.values.dtype), gradient.indices
    gradient = tf.convert_to_tensor(gradient)
    return (gradient * tf.cast(share, gradient.dtype),)


def _joined(tf: Any, one: Part, other: Part) -> Part:
    if len(one) == 1:
        return (one[0] + other[0],)
    return tuple(tf.concat(pair, 0) for pair in zip(one, other))


def _shapes(tf: Any, one: Part) -> Part:
    if len(one) == 1:
        return (one[0].shape,)
    return tuple(tf.TensorShape([None]).concatenate(part.shape[1:]) for part in one)


def _mean(tf: Any, one: Part, total: Any, variable: Any) -> Any:
    value = tf.math.divide_no_nan(one[0], tf.cast(total, one[0].dtype))
    return value if len(one) == 1 else tf.IndexedSlices(value, one[1], tf.constant(list(variable.shape)))

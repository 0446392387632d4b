"""Seeds the order of a fit's data if the script does not, so that the next attempt trains the same batches.

An unseeded `Dataset.shuffle` and the shuffle of arrays in `fit` get seeds of the process (stallguard/probe/seeds).
What the script seeds itself does not change.

TensorFlow's global seed stays unset: with it, Keras 3 would shuffle every epoch in the same order, and every
augmentation in `Dataset.map` would repeat each epoch (measured on TensorFlow 2.21).
"""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..frameworks import tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context
    from .fit_session import CheckpointSession

_STEP = 1_000_003  # between the seeds of two fits
_LIMIT = 2**31 - 1
BITS = 31
INNER = "a Dataset.shuffle without a seed in a function of another dataset has another order in each attempt"


class Order:
    """The order of a fit's arrays: a permutation for each epoch, from the run's seed and a counter (Keras 3).

    The dataset is opened again for each epoch and would repeat the same permutation; the counter, a variable that the
    dataset reads, gives each opening another one.
    """

    def __init__(self, tf: Any, seed: int) -> None:
        self._tf = tf
        self._seed = seed
        with tf.device("/CPU:0"):
            self._opening = tf.Variable(0, dtype=tf.int64, trainable=False)

    def turn(self, opening: int) -> None:
        """Set the counter: the `opening`-th iterator is drawn from next."""
        self._opening.assign(opening)

    def shuffle(self, value: Any, *_: Any, **__: Any) -> Any:
        """Replace `tf.random.shuffle`."""
        seed = self._tf.stack([self._tf.constant(self._seed, self._tf.int64), self._opening])
        return self._tf.random.experimental.stateless_shuffle(value, seed)


def patch_shuffle(session: CheckpointSession, module: Any) -> None:
    """Seed the unseeded calls of `Dataset.shuffle`, in their order.

    Not in a function of another dataset: with one seed, each inner dataset would have the same order each time.
    """

    def make(original: Any) -> Any:
        def __init__(  # noqa: N807  a wrapper of one
            self: Any, input_dataset: Any, buffer_size: Any, seed: Any = None, *args: Any, **named: Any
        ) -> None:
            if seed is None and session.context.seeds is not None and not tensorflow.globally_seeded():
                if sys.modules["tensorflow.python.eager.context"].executing_eagerly():
                    seed = session.context.seeds.draw("Dataset.shuffle", BITS)
                else:
                    session.context.beyond(INNER)
            original(self, input_dataset, buffer_size, seed, *args, **named)

        return __init__

    session.context.wrap(module._ShuffleDataset, "__init__", make)


def patch_arrays(session: CheckpointSession, module: Any) -> None:
    """Shuffle the arrays of an unseeded fit from the run's seed (Keras 3)."""

    def make(original: Any) -> Any:
        def get_tf_dataset(self: Any) -> Any:
            fit = session.fit
            if (
                fit is None
                or fit.callbacks is not None
                or self._shuffle is not True
                or tensorflow.globally_seeded()
            ):
                return original(self)
            tf, seed = sys.modules["tensorflow"], _seed_of(session.context, fit.ordinal)
            if seed is not None:
                fit.order = session.guarded("ordering", lambda: Order(tf, seed))
            if fit.order is None:
                return original(self)
            with replaced(tf.random, "shuffle", fit.order.shuffle):
                return original(self)

        return get_tf_dataset

    session.context.wrap(module.ArrayDataAdapter, "get_tf_dataset", make)


def patch_old_arrays(session: CheckpointSession, module: Any) -> None:
    """Shuffle the arrays of an unseeded fit from the run's seed (Keras 2: one iterator for all epochs)."""

    def make(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a wrapper of one
            fit = session.fit
            random = module.tf.random
            ours = random.shuffle
            if fit is not None and fit.callbacks is None and not tensorflow.globally_seeded():
                ours = functools.partial(random.shuffle, seed=_seed_of(session.context, fit.ordinal))
            with replaced(random, "shuffle", ours):
                original(self, *args, **named)

        return __init__

    session.context.wrap(module.TensorLikeDataAdapter, "__init__", make)


@contextmanager
def replaced(module: Any, name: str, function: Any) -> Iterator[None]:
    """Set `module.name` to `function` during the body."""
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


def _seed_of(context: Context, ordinal: int) -> int | None:
    """Return the seed of the arrays' order in fit `ordinal`; None if unseeded randomness stays random."""
    seeds = context.seeds
    return None if seeds is None else (seeds.of("fits", BITS) - ordinal * _STEP) % _LIMIT

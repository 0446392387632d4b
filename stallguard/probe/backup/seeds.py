"""One seed a run for what a script leaves unseeded, so that the next attempt sees the same data in the same order.

Most scripts seed nothing.  Python's, numpy's and torch's generators then start from a seed drawn once a run (a random
split into training and validation must not change under a resumed model), an unseeded `Dataset.shuffle` gets
a seed, and so does the shuffle of arrays in `fit`.  What the script seeds itself is never touched.

TensorFlow's global seed stays unset: with it, Keras 3 would shuffle every epoch alike and every augmentation
in `Dataset.map` would repeat each epoch (measured on TensorFlow 2.21).
"""

from __future__ import annotations

import functools
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .session import Session

_STEP = 1_000_003  # keeps the seeds of one run apart
_LIMIT = 2**31 - 1


def of_run(folder: str) -> int:
    """Return the seed of the run, drawn by its first attempt and kept in `folder`; raises OSError."""
    path = os.path.join(folder, "seed")
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        seed = int.from_bytes(os.urandom(4), "little") % _LIMIT
    os.makedirs(folder, exist_ok=True)
    with open(path + ".tmp", "w", encoding="ascii") as file:
        file.write("%d" % seed)
    os.replace(path + ".tmp", path)
    return seed


def early(folder: str) -> dict[str, Callable[[Any], None]]:
    """Return {module: seed it} for the generators of Python, numpy and torch, where they are not imported yet.

    One that is there already may have been seeded by the script, which cannot be told from a fresh one.
    """
    found: dict[str, Callable[[Any], None]] = {}
    for name in ("random", "numpy.random"):
        if name not in sys.modules:
            found[name] = lambda module: module.seed(of_run(folder))
    if "torch" not in sys.modules:
        found["torch"] = lambda module: module.default_generator.manual_seed(of_run(folder))
    return found


def globally_seeded() -> bool:
    """Whether the script gave TensorFlow a global seed."""
    context = sys.modules.get("tensorflow.python.eager.context")
    return context is not None and context.global_seed() is not None


class Order:
    """The order of a fit's arrays: a permutation an epoch, from the run's seed and a counter (Keras 3).

    The dataset opens anew each epoch and would start the same sequence again; the counter, a variable that
    the dataset reads, makes each opening another draw.
    """

    def __init__(self, tf: Any, seed: int) -> None:
        self._tf = tf
        self._seed = seed
        with tf.device("/CPU:0"):
            self._opening = tf.Variable(0, dtype=tf.int64, trainable=False)

    def turn(self, opening: int) -> None:
        """Say that the iterator about to be drawn from is the `opening`-th."""
        self._opening.assign(opening)

    def shuffle(self, value: Any, *_: Any, **__: Any) -> Any:
        """Stand in for `tf.random.shuffle`."""
        seed = self._tf.stack([self._tf.constant(self._seed, self._tf.int64), self._opening])
        return self._tf.random.experimental.stateless_shuffle(value, seed)


def patch_shuffle(session: Session, module: Any) -> None:
    """Give unseeded `Dataset.shuffle`s a seed, by their place in the order of shuffles."""
    count = [0]

    def make(original: Any) -> Any:
        def __init__(  # noqa: N807  a stand-in for one
            self: Any, input_dataset: Any, buffer_size: Any, seed: Any = None, *args: Any, **named: Any
        ) -> None:
            count[0] += 1
            if seed is None and not globally_seeded():
                seed = session.seed(count[0])
            original(self, input_dataset, buffer_size, seed, *args, **named)

        return __init__

    session.context.wrap(module._ShuffleDataset, "__init__", make)


def patch_arrays(session: Session, module: Any) -> None:
    """Shuffle the arrays of an unseeded fit from the run's seed (Keras 3)."""

    def make(original: Any) -> Any:
        def get_tf_dataset(self: Any) -> Any:
            fit = session.fit
            if fit is None or fit.callbacks is not None or self._shuffle is not True or globally_seeded():
                return original(self)
            tf, seed = sys.modules["tensorflow"], session.seed(-fit.ordinal)
            if seed is not None:
                fit.order = session.guarded("ordering", lambda: Order(tf, seed))
            if fit.order is None:
                return original(self)
            with replaced(tf.random, "shuffle", fit.order.shuffle):
                return original(self)

        return get_tf_dataset

    session.context.wrap(module.ArrayDataAdapter, "get_tf_dataset", make)


def patch_old_arrays(session: Session, module: Any) -> None:
    """Shuffle the arrays of an unseeded fit from the run's seed (Keras 2: one iterator for all epochs)."""

    def make(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a stand-in for one
            fit = session.fit
            random = module.tf.random
            ours = random.shuffle
            if fit is not None and fit.callbacks is None and not globally_seeded():
                ours = functools.partial(random.shuffle, seed=session.seed(-fit.ordinal))
            with replaced(random, "shuffle", ours):
                original(self, *args, **named)

        return __init__

    session.context.wrap(module.TensorLikeDataAdapter, "__init__", make)


@contextmanager
def replaced(module: Any, name: str, function: Any) -> Iterator[None]:
    """Let `module.name` be `function` for the body."""
    before = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, before)


def derived(seed: int, place: int) -> int:
    """Return the seed of the `place`-th use of a run's seed."""
    return (seed + place * _STEP) % _LIMIT

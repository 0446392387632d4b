"""The batches that a Keras `fit` is about to train, seen just before they are trained and fed to it unchanged.

A model keeps the function that trains its next batches in its own dictionary: Keras makes it once, and looks it up
before each call.  For one call another function stands there.  It puts the original back first, draws the batches of
that call from the iterator, shows them, and calls the original with a stand-in for the iterator: one that holds these
batches and ends after them.  So nothing remains for the calls that follow, and a call that nobody asked to see is the
framework's own.

What must not differ is what the original is given.  A tf.data iterator is stood in for by one with the same element
specification, not the same shapes: a graph that was traced for the one runs for the other, and the tensors are those
that were drawn, neither copied nor cast.  If the data end, the original finds the end where it would have found it: in
the exhausted iterator itself if no batch was left, after the last batch of the stand-in else.  If the pipeline raises,
the batches before that are trained, and the error then leaves the call of the train function, once.

Left alone: an iterator of a distribution strategy, whose batches lie on several devices, and every kind of data that
is not known here.
"""

from __future__ import annotations

import sys
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Callable, Optional

    from .context import Context

    Look = Callable[[list[Any]], object]

TENSORFLOW = (
    "keras.src.backend.tensorflow.trainer",
    "keras.src.engine.training",  # Keras 2.13 to 2.15
    "tf_keras.src.engine.training",
    "keras.engine.training",  # Keras 2.6 to 2.12
)
JAX = "keras.src.backend.jax.trainer"
TORCH = "keras.src.backend.torch.trainer"
NAME = "train_function"


class Lookahead:
    """Shows and feeds the batches of the next call of a model's train function."""

    def __init__(self, context: Context) -> None:
        self.context = context
        # What a look may raise into the call of the train function.
        self.passes: tuple[type[Exception], ...] = ()
        # During a look: what the train function is given before its data (JAX: the state).
        self.arguments: tuple[Any, ...] = ()

    def arrange(self, model: Any, look: Look) -> bool:
        """Have look(batches) called with the batches of the next call of the model's train function, before that.

        `batches` is empty if the data end at that call.  What `look` raises is reported and swallowed, except for
        `passes`.  If `look` has Keras make the train function anew, the new one is called.  Returns False, and
        changes nothing, if the loop of this model does not allow it: no train function yet, a distribution strategy,
        an unknown framework.
        """
        call = self._next_call(model)
        if call is None:
            return False
        call.looks.append((look, self))
        return True

    def feed(self, model: Any, batches: Iterable[Any]) -> bool:
        """Have the next call of the train function train `batches` first, in order, and draw only what is missing.

        `batches` are elements of the iterator that this call will get.  If they are more than one call trains, the
        rest is fed to the calls that follow.  Returns False as `arrange` does, and if Keras hands the train function
        batches instead of an iterator (torch).
        """
        if not _trains_from_an_iterator(model):
            return False
        call = self._next_call(model)
        if call is None:
            return False
        call.fed.extend(batches)
        return True

    def _next_call(self, model: Any) -> Optional[NextCall]:
        own = vars(model)
        there = own.get(NAME)
        if isinstance(there, NextCall):
            return there
        if not callable(there) or _home(model) is None or _is_distributed(model):
            return None
        own[NAME] = call = NextCall(self, model, there)
        return call


def train_function(model: Any) -> Any:
    """Return what trains a model's batches, whatever stands in for it now; None if there is nothing yet."""
    found = vars(model).get(NAME)
    return found.original if isinstance(found, NextCall) else found


class NextCall:
    """Stands in for a train function during one call of it."""

    def __init__(self, owner: Lookahead, model: Any, original: Callable[..., Any]) -> None:
        self.looks: list[tuple[Look, Lookahead]] = []
        self.fed: list[Any] = []
        self._owner = owner
        self._model = model
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)  # a script may ask a tf.function for its traces

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Train as the original does, after the looks: args[-1] is the iterator, or a list of batches."""
        if vars(self._model).get(NAME) is self:
            vars(self._model)[NAME] = self.original
        data = args[-1] if args else None
        if not isinstance(data, list) and not _can_be_drawn_from(data):
            self._owner.context.surprise(
                "looking ahead", TypeError("batches from a %s" % type(data).__name__)
            )
            return self.original(*args, **named)
        batches, error = self._drawn(data)
        for look, owner in self.looks:
            self._show(look, owner, batches, args[:-1])
        train = train_function(self._model) or self.original
        if error is None and (isinstance(data, list) or not batches):
            return train(*args, **named)
        return _trained(train, args, named, batches, error)

    def _drawn(self, data: Any) -> tuple[list[Any], Optional[Exception]]:
        """Return the batches of this call, and what the pipeline raised where there should have been another."""
        count = _batches_a_call(self._model)
        batches, left = self.fed[:count], self.fed[count:]
        if left:
            self._owner.feed(self._model, left)
        try:
            with self._owner.context.phase("input"):
                batches.extend(islice(data, count - len(batches)))
        except Exception as error:
            return batches, error
        return batches, None

    def _show(self, look: Look, owner: Lookahead, batches: list[Any], arguments: tuple[Any, ...]) -> None:
        owner.arguments = arguments
        try:
            look(list(batches))
        except owner.passes:
            raise
        except Exception as error:
            owner.context.surprise("looking at the next batches", error)
        finally:
            owner.arguments = ()


def _trained(
    train: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    batches: list[Any],
    error: Optional[Exception],
) -> Any:
    """Train `batches`, then raise what the pipeline raised instead of another one."""
    if error is None:
        return train(*args[:-1], _stand_in(args[-1], batches), **named)
    if batches:
        try:
            train(*args[:-1], _stand_in(args[-1], batches), **named)
        except StopIteration:
            pass  # the end of the stand-in, where the pipeline raised
        except Exception as end:
            if type(end).__name__ != "OutOfRangeError":
                raise
    raise error


def _home(model: Any) -> Optional[str]:
    """Return the module of the class whose loop trains `model`, None for one that is not known."""
    homes = (*TENSORFLOW, JAX, TORCH)
    return next((kind.__module__ for kind in type(model).__mro__ if kind.__module__ in homes), None)


def _is_distributed(model: Any) -> bool:
    """Whether a strategy other than TensorFlow's default one hands out the batches."""
    strategy = getattr(model, "distribute_strategy", None)
    return strategy is not None and type(strategy).__name__ != "_DefaultDistributionStrategy"


def _trains_from_an_iterator(model: Any) -> bool:
    home = _home(model)
    if home == JAX:  # before Keras 3.10 its epoch iterator hands out lists, as torch's does
        return "__next__" in vars(getattr(sys.modules[JAX], "JAXEpochIterator", object))
    return home in TENSORFLOW


def _is_pipeline(data: Any) -> bool:
    return type(data).__name__ == "OwnedIterator" and type(data).__module__.startswith("tensorflow.")


def _can_be_drawn_from(data: Any) -> bool:
    """Whether `data` is an iterator of a tf.data pipeline or of Python's: train_on_batch gives a generator."""
    return _is_pipeline(data) or (
        hasattr(data, "__next__") and not type(data).__module__.startswith(("tensorflow.", "keras."))
    )


def _batches_a_call(model: Any) -> int:
    """Return how many batches a call trains.  Keras 2 keeps the number in a variable, and changes it as it goes."""
    count: Any = (
        getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None) or 1
    )
    return int(count.numpy() if hasattr(count, "numpy") else count)


def _stand_in(data: Any, batches: list[Any]) -> Any:
    """Return an iterator like `data` that holds `batches`."""
    if not _is_pipeline(data):
        return iter(batches)
    from tensorflow import data as pipelines
    from tensorflow import raw_ops
    from tensorflow.python.data.util import structure

    spec = data.element_spec
    shapes = structure.get_flat_tensor_shapes(spec)
    held: Any = None
    for batch in batches:
        parts = structure.to_tensor_list(spec, batch)
        one = pipelines.experimental.from_variant(
            raw_ops.TensorDataset(components=parts, output_shapes=shapes), spec
        )
        held = one if held is None else held.concatenate(one)
    options = pipelines.Options()  # nothing to tune or to rewrite: milliseconds saved
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return iter(held.with_options(options))

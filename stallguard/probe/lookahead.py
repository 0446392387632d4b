"""Passes the batches that a Keras `fit` is about to train to a function, and then to the fit unchanged.

A model stores the function that trains its next batches in its own dictionary: Keras makes it once, and reads it before
each call.  For one call, `NextCall` replaces it.  It first restores the original, draws the batches of that call from
the iterator, passes them to the functions that asked for them, and calls the original with a substitute for the
iterator: one that holds these batches and ends after them.  The calls that follow are the framework's own.

The original must get equal arguments.  The substitute for a tf.data iterator has the same element specification, not
the same shapes: a graph that was traced for the one runs for the other, and the tensors are those that were drawn,
neither copied nor cast.  If the data end, the original meets the end in the same place: in the exhausted iterator
itself if no batch was left, otherwise after the last batch of the substitute.  If the pipeline raises, the batches
before the error are trained, and the error is then raised from the call of the train function, once.  Its text names
the operation that failed and how it was run; so that it reads as without stallguard, batches of tf.data are drawn in a
graph if the train function is one.

Not supported: an iterator of a distribution strategy, whose batches are on several devices, and every kind of data
that is not handled here.
"""

from __future__ import annotations

import sys
from itertools import islice
from weakref import WeakKeyDictionary

from . import patches
from .frameworks import keras

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Callable, Optional

    from .context import Context

    Look = Callable[[list[Any]], object]

NAME = "train_function"
# {tf.function: (the specification of its iterator, a function that draws a batch in a graph)}
_DRAWN: WeakKeyDictionary[Any, tuple[Any, Callable[..., Any]]] = WeakKeyDictionary()


class Lookahead:
    """Reads and provides the batches of the next call of a model's train function."""

    def __init__(self, context: Context) -> None:
        self.context = context
        # Exceptions of a look that are raised from the call of the train function.
        self.passes: tuple[type[Exception], ...] = ()
        # During a look: the arguments of the train function before its data (JAX: the state).
        self.arguments: tuple[Any, ...] = ()

    def arrange(self, model: Any, look: Look) -> bool:
        """Call look(batches) with the batches of the next call of the model's train function, before that call.

        `batches` is empty if the data end at that call.  An exception of `look` is reported and dropped, unless it is
        in `passes`.  If `look` has Keras make the train function again, the new one is called.  Return False, and
        change nothing, if the loop of this model does not allow it: no train function yet, a distribution strategy,
        an unknown framework.
        """
        call = self._next_call(model)
        if call is None:
            return False
        call.looks.append((look, self))
        return True

    def feed(self, model: Any, batches: Iterable[Any]) -> bool:
        """Have the next call of the train function train `batches` first, in order, and draw only the missing ones.

        `batches` are elements of the iterator that this call will get.  If there are more than one call trains, the
        calls that follow get the rest.  Return False as `arrange` does, and if the train function gets batches instead
        of an iterator (torch).
        """
        home = _home(model)
        if home == keras.JAX:  # before Keras 3.10 its epoch iterator returns lists, as torch's does
            from_iterator = "__next__" in vars(getattr(sys.modules[keras.JAX], "JAXEpochIterator", object))
        else:
            from_iterator = home in keras.ON_TENSORFLOW
        if not from_iterator:
            return False
        call = self._next_call(model)
        if call is None:
            return False
        call.fed.extend(batches)
        return True

    def _next_call(self, model: Any) -> Optional[NextCall]:
        """Return what replaces the model's train function, installed if it is not yet; None if it cannot be."""
        own = vars(model)
        there = own.get(NAME)
        if isinstance(there, NextCall):
            return there
        if not callable(there) or _home(model) is None:
            return None
        strategy = getattr(model, "distribute_strategy", None)
        if strategy is not None and type(strategy).__name__ != "_DefaultDistributionStrategy":
            return None  # it distributes the batches
        own[NAME] = call = NextCall(self, model, there)
        return call


def train_function(model: Any) -> Any:
    """Return the function that trains a model's batches, even while NextCall replaces it; None before there is one."""
    found = vars(model).get(NAME)
    return found.original if isinstance(found, NextCall) else found


class NextCall:
    """Replaces a train function during one call of it."""

    def __init__(self, owner: Lookahead, model: Any, original: Callable[..., Any]) -> None:
        self.looks: list[tuple[Look, Lookahead]] = []
        self.fed: list[Any] = []
        self._owner = owner
        self._model = model
        self.original = original

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)  # a script can read the traces of a tf.function

    @patches.passing
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the looks, then train as the original does; args[-1] is the iterator, or a list of batches."""
        if vars(self._model).get(NAME) is self:
            vars(self._model)[NAME] = self.original
        data = args[-1] if args else None
        if not isinstance(data, list) and not _can_be_drawn_from(data):
            self._owner.context.surprise("looking ahead", TypeError("batches from a %s" % type(data).__name__))
            return self.original(*args, **named)
        batches, error = self._drawn(data)
        for look, owner in self.looks:
            owner.arguments = args[:-1]
            try:
                with owner.context.own_work():
                    look(list(batches))
            except owner.passes:
                raise
            except Exception as unexpected:
                owner.context.surprise("looking at the next batches", unexpected)
            finally:
                owner.arguments = ()
        train = train_function(self._model) or self.original
        if error is None and (isinstance(data, list) or not batches):
            return train(*args, **named)
        return _trained(train, args, named, batches, error)

    def _drawn(self, data: Any) -> tuple[list[Any], Optional[Exception]]:
        """Return the batches of this call, and the exception of the pipeline if it raised one instead of a batch."""
        model = self._model
        # Keras 2 stores in a variable how many batches a call trains, and changes it over time.
        stored = getattr(model, "steps_per_execution", None) or getattr(model, "_steps_per_execution", None) or 1
        count = int(stored.numpy() if hasattr(stored, "numpy") else stored)
        batches, left = self.fed[:count], self.fed[count:]
        if left:
            self._owner.feed(self._model, left)
        source = data
        try:
            source = _as_drawn_by(self.original, data)
        except Exception as unexpected:  # not the pipeline's: nothing was drawn
            self._owner.context.surprise("preparing to draw a batch", unexpected)
        try:
            with self._owner.context.phase("input"):
                batches.extend(islice(source, count - len(batches)))
        except Exception as error:
            return batches, error
        return batches, None


def _trained(
    train: Callable[..., Any],
    args: tuple[Any, ...],
    named: dict[str, Any],
    batches: list[Any],
    error: Optional[Exception],
) -> Any:
    """Train `batches`, then raise the exception that the pipeline raised after them."""
    if error is None:
        return train(*args[:-1], _stand_in(args[-1], batches), **named)
    if batches:
        try:
            train(*args[:-1], _stand_in(args[-1], batches), **named)
        except StopIteration:
            pass  # the end of the substitute, at the batch for which the pipeline raised
        except Exception as end:
            if type(end).__name__ != "OutOfRangeError":
                raise
    raise error


def _home(model: Any) -> Optional[str]:
    """Return the module of the class whose loop trains `model`, None if it is not known."""
    homes = (*keras.ON_TENSORFLOW, keras.JAX, keras.TORCH)
    return next((kind.__module__ for kind in type(model).__mro__ if kind.__module__ in homes), None)


def _is_pipeline(data: Any) -> bool:
    return type(data).__name__ == "OwnedIterator" and type(data).__module__.startswith("tensorflow.")


def _can_be_drawn_from(data: Any) -> bool:
    """Return whether `data` is an iterator of a tf.data pipeline or of Python: train_on_batch passes a generator."""
    return _is_pipeline(data) or (
        hasattr(data, "__next__") and not type(data).__module__.startswith(("tensorflow.", "keras."))
    )


def _as_drawn_by(train: Callable[..., Any], data: Any) -> Any:
    """Return an iterator of the batches of `data` that are drawn in a graph if `train` draws them in one."""
    graph = _graph_in(train)
    if graph is None or not _is_pipeline(data):
        return data
    from tensorflow import config, errors, function, type_spec_from_value

    if config.functions_run_eagerly():
        return data

    def draw(iterator: Any) -> Any:
        return iterator.get_next()

    spec = type_spec_from_value(data)
    known, drawn = _DRAWN.get(graph, (None, draw))
    if known != spec:  # 7 ms
        draw.__name__ = graph.__name__  # an error names the function
        # Not called as a tf.function: TensorFlow would count the traces, and warn of them.
        drawn = _filtered(function(draw, autograph=False).get_concrete_function(spec))
        _DRAWN[graph] = spec, drawn

    def batches() -> Iterator[Any]:
        while True:
            try:
                batch = drawn(data)
            except errors.OutOfRangeError:
                return
            yield batch

    return batches()


def _graph_in(train: Callable[..., Any]) -> Any:
    """Return the tf.function by which a train function draws and trains; None if each operation is run by itself."""
    # Of Keras 2 it is one itself, of Keras 3 a function around one.
    parts = [train, *(cell.cell_contents for cell in getattr(train, "__closure__", None) or ())]
    graphs = [one for one in parts if hasattr(one, "get_concrete_function") and hasattr(one, "__name__")]
    return next((one for one in graphs if one is train or one.__name__.endswith("_on_iterator")), None)


def _filtered(drawn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `drawn` with the frames of TensorFlow left out of an error, as those of a tf.function are."""
    try:
        from tensorflow.python.util.traceback_utils import filter_traceback
    except ImportError:  # not public
        return drawn
    filtered: Callable[..., Any] = filter_traceback(drawn)
    return filtered


def _stand_in(data: Any, batches: list[Any]) -> Any:
    """Return an iterator of the type of `data` that yields `batches`."""
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
        one = pipelines.experimental.from_variant(raw_ops.TensorDataset(components=parts, output_shapes=shapes), spec)
        held = one if held is None else held.concatenate(one)
    options = pipelines.Options()  # no tuning and no rewriting: saves milliseconds
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return iter(held.with_options(options))

"""The hooks of checkpoints and resume in Keras: `fit`, the callback list, and the first data iterator of a fit.

What is common to all versions stands first, then Keras 3 on any backend, then Keras 2 (`tf.keras` to TensorFlow 2.15)
and tf_keras.  No callback is added: on torch and JAX one more would move all callbacks to the main thread.

In Keras 2 a resumed fit starts at its epoch and batch through Keras' own counters
(`_maybe_load_initial_counters_from_ckpt`).  `initial_epoch` does not work: the pipeline of arrays repeats only for the
epochs after it.

The order of a fit's data is seeded if the script does not seed it, so that the next attempt trains the same batches: an
unseeded `Dataset.shuffle` and the shuffle of arrays in `fit` get seeds of the process (seeds.py).
What the script seeds itself does not change.

TensorFlow's global seed stays unset: with it, Keras 3 would shuffle every epoch in the same order, and every
augmentation in `Dataset.map` would repeat each epoch (measured on TensorFlow 2.21).
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Callable

from .. import patches
from ..frameworks import tensorflow
from ..hooks import arguments_of
from ..lookahead import train_function
from . import announcements, fast_forward, object_kinds, pipelines, random_state, variables
from .fit import callbacks_of
from .fit_start import FitCall, GivenGenerator
from .saved_generation import StartOver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..context import Context
    from .fit import Fit
    from .fit_session import CheckpointSession

BACKUP = "BackupAndRestore"
Started = Callable[[dict[str, Any], int], dict[str, Any]]
OfFit = Callable[["Fit"], None]


def wrap_fit(session: CheckpointSession, owner: Any, started: Started) -> None:
    """Wrap `owner.fit`; `started(arguments, epoch)` returns the arguments with which it begins at `epoch`."""
    session.context.wrap(owner, "fit", functools.partial(_fit, session, started))


def wrap_callbacks(session: CheckpointSession, owner: Any, prepare: OfFit, advance: OfFit) -> None:
    """Wrap the class that calls all callbacks; `prepare`, `advance`: Session.begins.

    Not the end of a batch: the hook that counts beats calls `session.batch_ended`.
    """
    wrap = session.context.wrap
    wrap(owner, "on_train_begin", functools.partial(_train_begin, session, prepare, advance))
    wrap(owner, "on_epoch_begin", functools.partial(_epoch_begin, session))
    wrap(owner, "on_epoch_end", functools.partial(_epoch_end, session))


def wrap_iterator(
    session: CheckpointSession, owner: Any, method: str, make: Callable[[CheckpointSession, Any], Any]
) -> None:
    """Wrap the class that a fit takes its batches from, and its generator `method`."""
    session.context.wrap(owner, "__init__", functools.partial(_made, session))
    session.context.wrap(owner, method, functools.partial(make, session))


def _fit(session: CheckpointSession, started: Started, original: Any) -> Any:
    signature = inspect.signature(original)

    def fit(self: Any, *args: Any, **named: Any) -> Any:
        if not session.free():
            return original(self, *args, **named)
        asked = arguments_of(signature, self, *args, **named)
        if asked is None:
            return original(self, *args, **named)
        first, epochs = asked.get("initial_epoch") or 0, asked.get("epochs", 1)
        given = GivenGenerator()

        def start(epoch: int) -> Any:
            if epoch == first and not session.resuming and not given.was_drawn_from:
                return original(self, *args, **named)
            return original(self, **given.arguments(started(asked, epoch)))

        def skip() -> Any:
            nothing = {**started(asked, epochs), "callbacks": None, "verbose": 0}
            return original(self, **given.arguments(nothing))

        callbacks, validation = asked.get("callbacks"), asked.get("validation_data")
        why = obstacle(self, callbacks)
        caller = sys._getframe()
        while caller.f_back is not None and not object_kinds.is_users(caller.f_code.co_filename):
            caller = caller.f_back
        # The function of the script that called fit.
        site = "%s:%s" % (os.path.basename(caller.f_code.co_filename), caller.f_code.co_name)
        whole = {name: one.default for name, one in signature.parameters.items()}
        whole.pop(next(iter(whole)))
        every = {**whole, **asked}
        return session.run(
            FitCall(self, callbacks, validation, first, epochs, site, why, start, skip, every, given.forget)
        )

    return fit


def obstacle(model: Any, callbacks: Any) -> str:
    """Return why no checkpoints of a fit are made, "" if they are."""
    kinds = {kind.__name__ for callback in callbacks_of(callbacks) for kind in type(callback).__mro__}
    if BACKUP in kinds:
        return announcements.OWN_BACKUP
    strategy = getattr(model, "distribute_strategy", None)
    return announcements.REPLICAS if getattr(strategy, "num_replicas_in_sync", 1) > 1 else ""


def _made(session: CheckpointSession, original: Any) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a wrapper of one
        fit = session.fit
        if fit is not None and fit.iterator is None:
            fit.iterator = self  # the first that a fit creates is that of its training data
        original(self, *args, **named)

    return __init__


def _train_begin(session: CheckpointSession, prepare: OfFit, advance: OfFit, original: Any) -> Callable[..., Any]:
    def on_train_begin(self: Any, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.callbacks is not None or self.model is not fit.model:
            return original(self, *args, **named)
        session.begins(fit, self, prepare, advance)
        result = original(self, *args, **named)
        session.began(fit)
        return result

    return on_train_begin


def _epoch_begin(session: CheckpointSession, original: Any) -> Any:
    def on_epoch_begin(self: Any, epoch: int, *args: Any, **named: Any) -> Any:
        result = original(self, epoch, *args, **named)
        fit = session.fit
        if fit is not None and fit.callbacks is self:
            session.epoch_began(fit)
        return result

    return on_epoch_begin


def _epoch_end(session: CheckpointSession, original: Any) -> Any:
    def on_epoch_end(self: Any, epoch: int, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.callbacks is not self:
            return original(self, epoch, *args, **named)
        fit.count(session.context.index)  # before the callbacks: a fit inside them numbers its own batches
        result = original(self, epoch, *args, **named)
        session.epoch_ended(fit, epoch)
        return result

    return on_epoch_end


def patch_trainer(session: CheckpointSession, name: str, module: Any) -> None:
    """Wrap `fit` of the trainer class `name`, and the module's own epoch iterator if it has one."""
    trainer = getattr(module, name)
    wrap_fit(session, trainer, lambda asked, epoch: {**asked, "initial_epoch": epoch})
    iterator = getattr(module, "TFEpochIterator", None)
    if iterator is not None:  # before Keras 3.7 the loop is here
        session.context.wrap(iterator, "enumerate_epoch", functools.partial(_epoch, session))


def patch_base_trainer(session: CheckpointSession, module: Any) -> None:
    """Wrap the method that returns an epoch's logs."""
    session.context.wrap(module.Trainer, "_get_metrics_result_or_logs", functools.partial(_logs, session))


def patch_iterator(session: CheckpointSession, module: Any) -> None:
    """Wrap the epoch iterator that is common to all backends."""
    wrap_iterator(session, module.EpochIterator, "_enumerate_iterator", _epoch)


def patch_callbacks3(session: CheckpointSession, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    wrap_callbacks(session, module.CallbackList, _prepare3, functools.partial(_advance3, session))


def _prepare3(fit: Fit) -> None:
    """Create the variables that the first batch would create; raise StartOver if that fails.

    By tracing the step; if that is not possible (it runs eagerly), Keras builds the model.
    """
    dataset = getattr(fit.iterator, "_distributed_dataset", None)
    if dataset is None:  # torch and JAX build before training begins
        return
    _make_missing(fit, dataset, lambda: fit.model._symbolic_build(data_batch=dataset.element_spec))


def _make_missing(fit: Fit, dataset: Any, build: Callable[[], object]) -> None:
    trouble: Exception | None = None
    for make in (
        lambda: variables.trace(train_function(fit.model), pipelines.spec_of_iterator(dataset)),
        build,
        lambda: variables.build_optimizer_if(fit.model, fit.past.groups()),
    ):
        if not fit.missing():
            return
        try:
            make()
        except Exception as error:
            trouble = error
    missing = fit.missing()
    if missing:
        raise StartOver(announcements.UNBUILT % (trouble or missing)) from trouble


def _epoch(session: CheckpointSession, original: Any) -> Any:
    session.epoch_of = original

    def epoch(self: Any) -> Any:
        fit = session.fit
        if fit is None or fit.iterator is not self or fit.callbacks is None:
            return original(self)
        fit.per_execution = self.steps_per_execution
        fit.blind = not hasattr(self, "_distributed_dataset")
        return fast_forward.epoch(session, fit, self, original)

    return epoch


def _advance3(session: CheckpointSession, fit: Fit) -> None:
    fit.per_execution = fit.iterator.steps_per_execution
    fast_forward.finished_epochs(session, fit, fit.iterator, session.epoch_of)


def _logs(session: CheckpointSession, original: Any) -> Any:
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        return original(self, logs or session.logs_before(self) or logs)

    return _get_metrics_result_or_logs


def patch_model(session: CheckpointSession, module: Any) -> None:
    """Wrap `Model.fit` and the method that returns its initial counters."""
    # The arguments stay as they are: `_counters` sets where the fit begins.
    wrap_fit(session, module.Model, lambda asked, _: asked)
    session.context.wrap(module.Model, "_maybe_load_initial_counters_from_ckpt", functools.partial(_counters, session))


def patch_data(session: CheckpointSession, module: Any) -> None:
    """Wrap the handler from which every fit takes its batches."""
    wrap_iterator(session, module.DataHandler, "enumerate_epochs", _epochs)
    session.context.wrap(module.DataHandler, "steps", functools.partial(_steps, session))
    patch_old_arrays(session, module)


def patch_callbacks2(session: CheckpointSession, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    wrap_callbacks(session, module.CallbackList, _prepare2, functools.partial(_advance2, session))


def patch_callbacks2_if_there(session: CheckpointSession, module: Any) -> None:
    """Wrap the list if `keras.callbacks` is one module (Keras 2), not if it is a package."""
    if not hasattr(module, "__path__"):
        patch_callbacks2(session, module)


def patch_logs(session: CheckpointSession, module: Any) -> None:
    """Wrap the function that converts the results of an epoch; Keras 3 has a module of this name without it."""
    session.context.wrap(module, "sync_to_numpy_or_python_type", functools.partial(_results, session))


def _results(session: CheckpointSession, original: Any) -> Any:
    def sync_to_numpy_or_python_type(tensors: Any) -> Any:
        before = session.logs_before(session.fit.model) if tensors is None and session.fit else None
        return original(before or tensors)

    return sync_to_numpy_or_python_type


def _counters(session: CheckpointSession, original: Any) -> Any:
    def _maybe_load_initial_counters_from_ckpt(self: Any, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.model is not self or fit.saved is None:
            return original(self, *args, **named)
        if fit.skipping is not None:
            return fit.iterator._epochs, 0
        return fit.saved.epoch, fit.saved.executions

    return _maybe_load_initial_counters_from_ckpt


def _epochs(session: CheckpointSession, original: Any) -> Any:
    session.epoch_of = original

    def enumerate_epochs(self: Any) -> Any:
        fit = session.fit
        if fit is None or fit.iterator is not self or fit.callbacks is None or fit.skipping is not None:
            return original(self)
        return _walk(session, fit, self, original)

    return enumerate_epochs


@patches.yielding
def _walk(session: CheckpointSession, fit: Fit, handler: Any, original: Any) -> Iterator[Any]:
    """Yield (epoch, iterator) like Keras; a resumed fit first runs through its finished epochs."""
    target = handler._initial_epoch if fit.saved is not None else fit.first
    now = random_state.capture()
    opens = handler._adapter.should_recreate_iterator()  # in each epoch
    handler._initial_epoch = fit.first
    if fit.saved is not None:
        session.digested(fit.enter)
        session.guarded("shortening files", fit.files.draw_again)
        random_state.restore(fit.past.random("open"))
        if handler._inferred_steps is None:
            handler._inferred_steps = fit.past.facts["length"]
    drawing = _must_be_drawn(fit, handler)
    stream = original(handler)
    for coming in count(fit.first):
        resuming = fit.saved is not None and not fit.passed
        if not resuming and not fit.continues():
            session.guarded("noting the pipeline's state", lambda: session.digested(fit.note_data))
            now = random_state.capture()
        elif resuming and coming == target and opens:
            # Keras 2 ends an epoch (Sequence.on_epoch_end) only as it opens the next one, after `note_data`.
            fast_forward.open_again(session, fit, saved=not fit.past.between_epochs)
            now = random_state.capture()
        item = next(stream, None)
        if item is None:
            return
        session.openings.epoch()
        epoch, iterator = item
        if resuming and epoch < target:
            fit.opening(iterator, {})
            fast_forward.pass_over(session, fit, iterator, fit.past.ends[epoch - fit.first][1] if drawing else 0)
            fast_forward.repeat_others(session, fit, epoch - fit.first + 1)
            continue
        if resuming:
            if not opens:
                first = fit.source is None and fit.past.between_epochs
                fast_forward.open_again(session, fit, saved=not first)
            fast_forward.draw(session, fit, iterator, now)
        fit.opening(iterator, now)
        yield epoch, iterator


def _must_be_drawn(fit: Fit, handler: Any) -> str:
    """Return why earlier epochs must be drawn; not with one iterator for all epochs, whose draws are counted."""
    if fit.saved is None or not fit.past.verified or not handler._adapter.should_recreate_iterator():
        return ""
    return pipelines.must_be_drawn(handler, fit.readable())


def _advance2(session: CheckpointSession, fit: Fit) -> None:
    handler, saved = fit.iterator, fit.past
    drawing = _must_be_drawn(fit, handler)
    kept = handler._initial_epoch, handler._epochs
    handler._initial_epoch, handler._epochs = fit.first, fit.first + len(saved.ends)
    first = fast_forward.compares_first(fit, handler, bool(drawing))
    for number, (_, iterator) in enumerate(session.epoch_of(handler)):
        batches = saved.ends[number][1] if drawing else int(first)
        fast_forward.pass_over(session, fit, iterator, batches, first)
        first = False
        fast_forward.repeat_others(session, fit, number + 1)
    handler._initial_epoch, handler._epochs = kept
    fast_forward.open_again(session, fit, saved=True)


def _steps(session: CheckpointSession, original: Any) -> Any:
    def steps(self: Any) -> Any:
        fit = session.fit
        # Not earlier: Keras resets the metrics after it gets the epoch.
        if fit is not None and fit.iterator is self and fit.saved is not None and fit.passed and not fit.measured:
            fit.measured = True
            session.guarded("restoring metrics", fit.restore_metrics)
        return original(self)

    return steps


def _prepare2(fit: Fit) -> None:
    """Create the variables that the first batch would create, as in Keras 3; raise StartOver if that fails."""
    home = sys.modules[type(fit.iterator).__module__]  # the data_adapter of Keras 2 or of tf_keras
    dataset = fit.iterator._dataset

    def first_batch(data: Any) -> None:
        x, y, _ = home.unpack_x_y_sample_weight(data)
        predicted = fit.model(x, training=False)
        fit.model.compiled_loss.build(predicted)
        fit.model.compiled_metrics.build(predicted, y)

    _make_missing(
        fit, dataset, lambda: home.tf.function(first_batch, autograph=False).get_concrete_function(dataset.element_spec)
    )


_STEP = 1_000_003  # between the seeds of two fits
_LIMIT = 2**31 - 1
BITS = 31
INNER = "a Dataset.shuffle without a seed in a function of another dataset has another order in each attempt"


class Order:
    """The order of a fit's arrays: a permutation for each epoch, from the run's seed and a counter (Keras 3).

    The counter, a variable that the dataset reads, gives each opening another one.
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
            if fit is None or fit.callbacks is not None or self._shuffle is not True or tensorflow.globally_seeded():
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

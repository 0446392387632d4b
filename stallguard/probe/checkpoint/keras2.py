"""The hooks of checkpoints and resume in Keras 2 (`tf.keras` to TensorFlow 2.15) and tf_keras.

A resumed fit starts at its epoch and batch through Keras' own counters (`_maybe_load_initial_counters_from_ckpt`).
`initial_epoch` does not work: the pipeline of arrays repeats only for the epochs after it.
"""

from __future__ import annotations

import functools
import sys
from itertools import count
from typing import TYPE_CHECKING, Any

from .. import own_frames
from ..lookahead import train_function
from . import announcements, common, data_order, fast_forward, pipelines, random_state, variables
from .saved_generation import StartOver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .fit_session import CheckpointSession


def patch_model(session: CheckpointSession, module: Any) -> None:
    """Wrap `Model.fit` and the method that returns its initial counters."""
    # The arguments stay as they are: `_counters` sets where the fit begins.
    if common.patch_fit(session, module.Model, lambda asked, _: asked):
        session.context.hook_installed("checkpoint")
    session.context.wrap(
        module.Model, "_maybe_load_initial_counters_from_ckpt", functools.partial(_counters, session)
    )


def patch_data(session: CheckpointSession, module: Any) -> None:
    """Wrap the handler from which every fit takes its batches."""
    common.patch_iterator(session, module.DataHandler, "enumerate_epochs", _epochs)
    session.context.wrap(module.DataHandler, "steps", functools.partial(_steps, session))
    data_order.patch_old_arrays(session, module)


def patch_callbacks(session: CheckpointSession, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    common.patch_callbacks(session, module.CallbackList, _prepare, functools.partial(_advance, session))


def patch_callbacks_if_there(session: CheckpointSession, module: Any) -> None:
    """Wrap the list if `keras.callbacks` is one module (Keras 2), not if it is a package."""
    if not hasattr(module, "__path__"):
        patch_callbacks(session, module)


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


@own_frames.yielding
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
            fast_forward.pass_over(
                session, fit, iterator, fit.past.ends[epoch - fit.first][1] if drawing else 0
            )
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


def _advance(session: CheckpointSession, fit: Fit) -> None:
    """Move the data of a finished fit to their position at its end."""
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
        if (
            fit is not None
            and fit.iterator is self
            and fit.saved is not None
            and fit.passed
            and not fit.measured
        ):
            fit.measured = True
            session.guarded("restoring metrics", fit.restore_metrics)
        return original(self)

    return steps


def _prepare(fit: Fit) -> None:
    """Create the variables that the first batch would create, as in Keras 3; raise StartOver if that fails."""
    home = sys.modules[type(fit.iterator).__module__]  # the data_adapter of Keras 2 or of tf_keras
    dataset = fit.iterator._dataset
    trouble: Exception | None = None

    def first_batch(data: Any) -> None:
        x, y, _ = home.unpack_x_y_sample_weight(data)
        predicted = fit.model(x, training=False)
        fit.model.compiled_loss.build(predicted)
        fit.model.compiled_metrics.build(predicted, y)

    for make in (
        lambda: variables.trace(train_function(fit.model), pipelines.spec_of_iterator(dataset)),
        lambda: home.tf.function(first_batch, autograph=False).get_concrete_function(dataset.element_spec),
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

"""Backup and resume in Keras 2 (`tf.keras` to TensorFlow 2.15) and tf_keras: where its loop is.

Its own counters (`_maybe_load_initial_counters_from_ckpt`) start a resumed fit at its epoch and batch.  An
`initial_epoch` would not do: the arrays' pipeline repeats for the epochs that are left.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from . import common, passing, randomness, seeds, variables, words
from .fit import StartOver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .session import Session


def patch_model(session: Session, module: Any) -> None:
    """Wrap `Model.fit` and the counters that it starts from."""
    if common.patch_fit(session, module.Model, _asked):
        session.context.took("backup")
    session.context.wrap(
        module.Model, "_maybe_load_initial_counters_from_ckpt", functools.partial(_counters, session)
    )


def patch_data(session: Session, module: Any) -> None:
    """Wrap the handler that every fit takes its batches from."""
    common.patch_iterator(session, module.DataHandler, "enumerate_epochs", _epochs)
    session.context.wrap(module.DataHandler, "steps", functools.partial(_steps, session))
    seeds.patch_old_arrays(session, module)


def patch_callbacks(session: Session, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    common.patch_callbacks(session, module.CallbackList, _prepare)


def patch_callbacks_if_there(session: Session, module: Any) -> None:
    """Wrap the list where `keras.callbacks` is one module (Keras 2), not where it is a package."""
    if not hasattr(module, "__path__"):
        patch_callbacks(session, module)


def _asked(asked: dict[str, Any], epoch: int) -> dict[str, Any]:
    """Return the arguments as they are: `_counters` says where to begin."""
    return asked


def _counters(session: Session, original: Any) -> Any:
    def _maybe_load_initial_counters_from_ckpt(self: Any, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.model is not self or fit.saved is None:
            return original(self, *args, **named)
        if fit.saved.over:
            return fit.iterator._epochs, 0
        return fit.saved.epoch, fit.saved.executions

    return _maybe_load_initial_counters_from_ckpt


def _epochs(session: Session, original: Any) -> Any:
    def enumerate_epochs(self: Any) -> Any:
        fit = session.fit
        if fit is None or fit.iterator is not self or fit.callbacks is None:
            return original(self)
        return _walk(session, fit, self, original)

    return enumerate_epochs


def _walk(session: Session, fit: Fit, handler: Any, original: Any) -> Iterator[Any]:
    """Yield (epoch, iterator) like Keras; a resumed fit goes through the epochs that are done first."""
    target = handler._initial_epoch if fit.saved is not None else 0
    handler._initial_epoch = 0 if target < handler._epochs else target
    if target:
        fit.restore_opening()
        if handler._inferred_steps is None and fit.saved is not None:
            handler._inferred_steps = fit.saved.facts["length"]
    before = randomness.capture()
    for epoch, iterator in original(handler):
        if epoch < target:
            fit.opening(iterator, before)
            continue
        if fit.saved is not None and not fit.passed:
            session.guarded("passing over batches", lambda: _resume(session, fit, iterator))  # noqa: B023
        fit.opening(iterator, before)
        yield epoch, iterator
        before = randomness.capture()


def _steps(session: Session, original: Any) -> Any:
    def steps(self: Any) -> Any:
        fit = session.fit
        # Not before: Keras resets the metrics after it has asked for the epoch.
        if fit is not None and fit.iterator is self and fit.passed and not fit.resumed:
            fit.resumed = True
            session.guarded("restoring metrics", fit.restore_metrics)
        return original(self)

    return steps


def _resume(session: Session, fit: Fit, iterator: Any) -> None:
    fit.restore_data()
    if fit.iterator._adapter.should_recreate_iterator():
        fit.restore_opening()
    passing.draw(session, fit, iterator)


def _prepare(fit: Fit) -> None:
    """Create the variables that the first batch would create; raises StartOver where that fails."""
    home = sys.modules[type(fit.iterator).__module__]  # the data_adapter of Keras 2 or of tf_keras

    def first_batch(data: Any) -> None:
        x, y, _ = home.unpack_x_y_sample_weight(data)
        predicted = fit.model(x, training=False)
        fit.model.compiled_loss.build(predicted)
        fit.model.compiled_metrics.build(predicted, y)

    try:
        trace = home.tf.function(first_batch, autograph=False).get_concrete_function
        trace(fit.iterator._dataset.element_spec)
    except Exception as error:
        if not variables.built(fit.model):
            raise StartOver(words.UNBUILT % error) from error

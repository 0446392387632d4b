"""The hooks of checkpoints and resume in Keras 3, on any backend: `fit`, callbacks and epoch iterator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..lookahead import train_function
from . import announcements, common, fast_forward, pipelines, variables
from .saved_generation import StartOver

if TYPE_CHECKING:
    from .fit import Fit
    from .fit_session import CheckpointSession


def patch_trainer(session: CheckpointSession, name: str, module: Any) -> None:
    """Wrap `fit` of the trainer class `name`, and the module's own epoch iterator if it has one."""
    trainer = getattr(module, name)
    if common.patch_fit(session, trainer, lambda asked, epoch: {**asked, "initial_epoch": epoch}):
        session.context.hook_installed("checkpoint")
    iterator = getattr(module, "TFEpochIterator", None)
    if iterator is not None:  # before Keras 3.7 the loop is here
        session.context.wrap(iterator, "enumerate_epoch", functools.partial(_epoch, session))


def patch_base_trainer(session: CheckpointSession, module: Any) -> None:
    """Wrap the method that returns an epoch's logs."""
    session.context.wrap(module.Trainer, "_get_metrics_result_or_logs", functools.partial(_logs, session))


def patch_iterator(session: CheckpointSession, module: Any) -> None:
    """Wrap the epoch iterator that is common to all backends."""
    common.patch_iterator(session, module.EpochIterator, "_enumerate_iterator", _epoch)


def patch_callbacks(session: CheckpointSession, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    common.patch_callbacks(session, module.CallbackList, _prepare, functools.partial(_advance, session))


def _prepare(fit: Fit) -> None:
    """Create the variables that the first batch would create; raise StartOver if that fails.

    The training step is traced as in its first call.  If that is not possible (it runs eagerly), Keras builds the
    model, and then the optimizer is built.
    """
    dataset = getattr(fit.iterator, "_distributed_dataset", None)
    if dataset is None:  # torch and JAX build before training begins
        return
    trouble: Exception | None = None
    for make in (
        lambda: variables.trace(train_function(fit.model), pipelines.spec_of_iterator(dataset)),
        lambda: fit.model._symbolic_build(data_batch=dataset.element_spec),
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


def _advance(session: CheckpointSession, fit: Fit) -> None:
    """Move the data of a finished fit to their position at its end."""
    fit.per_execution = fit.iterator.steps_per_execution
    fast_forward.finished_epochs(session, fit, fit.iterator, session.epoch_of)


def _logs(session: CheckpointSession, original: Any) -> Any:
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        return original(self, logs or session.logs_before(self) or logs)

    return _get_metrics_result_or_logs

"""Backup and resume in Keras 3, on any backend: the hooks in `fit`, its callbacks and its epoch iterator.

No callback is added: on torch and JAX that alone would move all callbacks to the main thread.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable

from . import passing, variables, words
from .fit import StartOver

if TYPE_CHECKING:
    from .session import Session

TRAINERS = {
    "keras.src.backend.tensorflow.trainer": "TensorFlowTrainer",
    "keras.src.backend.torch.trainer": "TorchTrainer",
    "keras.src.backend.jax.trainer": "JAXTrainer",
}
BACKUPS = ("BackupAndRestore",)


def patch_trainer(session: Session, name: str, module: Any) -> None:
    """Wrap `fit` of the trainer class `name`, and the epoch iterator that module has of its own."""
    trainer = getattr(module, name)
    if session.context.wrap(trainer, "fit", functools.partial(_fit, session)):
        session.context.took("backup")
    iterator = getattr(module, "TFEpochIterator", None)
    if iterator is not None:  # Keras before 3.7 has the loop here
        session.context.wrap(iterator, "enumerate_epoch", functools.partial(_epoch, session))


def patch_base_trainer(session: Session, module: Any) -> None:
    """Wrap what gives an epoch's logs."""
    session.context.wrap(module.Trainer, "_get_metrics_result_or_logs", functools.partial(_logs, session))


def patch_iterator(session: Session, module: Any) -> None:
    """Wrap the epoch iterator that every backend shares."""
    session.context.wrap(module.EpochIterator, "__init__", functools.partial(_made, session))
    session.context.wrap(module.EpochIterator, "_enumerate_iterator", functools.partial(_epoch, session))


def patch_callbacks(session: Session, module: Any) -> None:
    """Wrap the list that calls all callbacks."""
    for method, make in (
        ("on_train_begin", _train_begin),
        ("on_train_batch_end", _batch_end),
        ("on_epoch_end", _epoch_end),
    ):
        session.context.wrap(module.CallbackList, method, functools.partial(make, session))


def _fit(session: Session, original: Any) -> Any:
    signature = inspect.signature(original)

    def fit(self: Any, *args: Any, **named: Any) -> Any:
        if session.fit is not None or session.stopped:
            return original(self, *args, **named)
        try:
            asked = signature.bind(self, *args, **named).arguments
        except TypeError:
            return original(self, *args, **named)  # which says what is wrong, in its own words
        appending(asked.get("callbacks"), session.context.resuming)

        def start(epoch: int) -> Any:
            if not epoch:
                return original(self, *args, **named)
            return original(**{**asked, "initial_epoch": epoch})

        return session.run(self, start, asked.get("epochs", 1), obstacle(self, asked))

    return fit


def obstacle(model: Any, asked: dict[str, Any]) -> str:
    """Return why a fit is left alone, "" where it is not."""
    if any(_named(callback, BACKUPS) for callback in callback_list(asked.get("callbacks"))):
        return words.OWN_BACKUP
    if asked.get("initial_epoch"):
        return words.OWN_EPOCH % asked["initial_epoch"]
    strategy = getattr(model, "distribute_strategy", None)
    if getattr(strategy, "num_replicas_in_sync", 1) > 1:
        return words.REPLICAS
    return ""


def appending(callbacks: Any, resuming: bool) -> None:
    """Let a CSVLogger go on with its file where an earlier attempt began it."""
    for callback in callback_list(callbacks) if resuming else ():
        if _named(callback, ("CSVLogger",)):
            callback.append = True


def callback_list(callbacks: Any) -> list[Any]:
    """Return the callbacks that a script gave: none, one, a list, or a CallbackList."""
    found = getattr(callbacks, "callbacks", callbacks)
    return list(found) if isinstance(found, (list, tuple)) else [found] if found is not None else []


def _named(callback: Any, names: tuple[str, ...]) -> bool:
    return any(kind.__name__ in names for kind in type(callback).__mro__)


def _made(session: Session, original: Any) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a stand-in for one
        fit = session.fit
        if fit is not None and fit.iterator is None:
            fit.iterator = self  # the first that a fit makes is that of its training data
        original(self, *args, **named)

    return __init__


def _train_begin(session: Session, original: Any) -> Callable[..., Any]:
    def on_train_begin(self: Any, logs: Any = None) -> Any:
        fit = session.fit
        if fit is None or fit.callbacks is not None or self.model is not fit.model:
            return original(self, logs)
        if fit.saved is not None:
            _build(fit)
            fit.restore_variables()
        fit.callbacks = self
        fit.per_execution = getattr(fit.model, "steps_per_execution", 1)
        result = original(self, logs)
        data = passing.dataset(fit.iterator)
        session.guarded("watching callbacks", lambda: fit.watch(self.callbacks, data))
        return result

    return on_train_begin


def _build(fit: Any) -> None:
    """Create the variables that the first batch would create; raises StartOver where that fails."""
    dataset = getattr(fit.iterator, "_distributed_dataset", None)
    if dataset is None:
        return  # torch and JAX build before training begins
    try:
        fit.model._symbolic_build(data_batch=dataset.element_spec)
    except Exception as error:
        if not variables.built(fit.model):
            raise StartOver(words.UNBUILT % error) from error


def _epoch(session: Session, original: Any) -> Any:
    def epoch(self: Any) -> Any:
        fit = session.fit
        if fit is None or fit.iterator is not self or fit.callbacks is None:
            return original(self)
        return passing.epoch(session, fit, self, original)

    return epoch


def _batch_end(session: Session, original: Any) -> Any:
    def on_train_batch_end(self: Any, *args: Any, **named: Any) -> Any:
        result = original(self, *args, **named)
        fit = session.fit
        if fit is not None and fit.callbacks is self:
            session.trained(fit)
        return result

    return on_train_batch_end


def _epoch_end(session: Session, original: Any) -> Any:
    def on_epoch_end(self: Any, epoch: int, *args: Any, **named: Any) -> Any:
        result = original(self, epoch, *args, **named)
        fit = session.fit
        if fit is not None and fit.callbacks is self:
            session.epoch_ended(fit, epoch)
        return result

    return on_epoch_end


def _logs(session: Session, original: Any) -> Any:
    def _get_metrics_result_or_logs(self: Any, logs: Any) -> Any:
        # An epoch of which every batch was passed over has no last step whose logs Keras could take.
        if not logs and session.fit is not None and session.fit.saved is not None:
            return self.get_metrics_result()
        return original(self, logs)

    return _get_metrics_result_or_logs

"""The hooks that every Keras shares: the script's callbacks, the callback list, the first data iterator of a fit.

No callback is added: on torch and JAX that alone would move all callbacks to the main thread.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable

from . import pipelines, words

if TYPE_CHECKING:
    from .fit import Fit
    from .session import Session

BACKUPS = ("BackupAndRestore",)
Started = Callable[[dict[str, Any], int], dict[str, Any]]
Prepare = Callable[["Fit"], None]


def patch_fit(session: Session, owner: Any, started: Started) -> bool:
    """Wrap `owner.fit`; `started(asked, epoch)` returns the arguments that make it begin at `epoch`."""
    return bool(session.context.wrap(owner, "fit", lambda original: _fit(session, original, started)))


def patch_callbacks(session: Session, owner: Any, prepare: Prepare) -> None:
    """Wrap the class that calls all callbacks.

    `prepare(fit)` creates what a resumed fit restores and may raise StartOver.  The end of a batch is not among
    them: the hook that counts beats calls `session.batch_ended` when there is something to do.
    """
    for method, make in (
        ("on_train_begin", lambda original: _train_begin(session, original, prepare)),
        ("on_epoch_end", lambda original: _epoch_end(session, original)),
    ):
        session.context.wrap(owner, method, make)


def patch_iterator(session: Session, owner: Any, method: str, make: Callable[[Session, Any], Any]) -> None:
    """Wrap the class that a fit takes its batches from, and its generator `method`."""
    session.context.wrap(owner, "__init__", functools.partial(_made, session))
    session.context.wrap(owner, method, functools.partial(make, session))


def _fit(session: Session, original: Any, started: Started) -> Any:
    signature = inspect.signature(original)

    def fit(self: Any, *args: Any, **named: Any) -> Any:
        if not session.free():
            return original(self, *args, **named)
        try:
            asked = dict(signature.bind(self, *args, **named).arguments)
        except TypeError:
            return original(self, *args, **named)  # which says what is wrong, in its own words
        asked.pop(next(iter(signature.parameters)))  # self: other hooks want it by its place
        _appending(asked.get("callbacks"), session.context.resuming)

        def start(epoch: int) -> Any:
            return original(self, **started(asked, epoch)) if epoch else original(self, *args, **named)

        return session.run(self, start, asked.get("epochs", 1), obstacle(self, asked))

    return fit


def obstacle(model: Any, asked: dict[str, Any]) -> str:
    """Return why a fit is left alone, "" where it is not."""
    if any(_named(callback, BACKUPS) for callback in callback_list(asked.get("callbacks"))):
        return words.OWN_BACKUP
    if asked.get("initial_epoch"):
        return words.OWN_EPOCH % (asked["initial_epoch"],)
    strategy = getattr(model, "distribute_strategy", None)
    if getattr(strategy, "num_replicas_in_sync", 1) > 1:
        return words.REPLICAS
    return ""


def callback_list(callbacks: Any) -> list[Any]:
    """Return the callbacks that a script gave: none, one, a list, or a CallbackList."""
    found = getattr(callbacks, "callbacks", callbacks)
    return list(found) if isinstance(found, (list, tuple)) else [found] if found is not None else []


def _appending(callbacks: Any, resuming: bool) -> None:
    """Let a CSVLogger go on with its file where an earlier attempt began it."""
    for callback in callback_list(callbacks) if resuming else ():
        if _named(callback, ("CSVLogger",)):
            callback.append = True


def _named(callback: Any, names: tuple[str, ...]) -> bool:
    return any(kind.__name__ in names for kind in type(callback).__mro__)


def _made(session: Session, original: Any) -> Any:
    def __init__(self: Any, *args: Any, **named: Any) -> None:  # noqa: N807  a stand-in for one
        fit = session.fit
        if fit is not None and fit.iterator is None:
            fit.iterator = self  # the first that a fit makes is that of its training data
        original(self, *args, **named)

    return __init__


def _train_begin(session: Session, original: Any, prepare: Prepare) -> Callable[..., Any]:
    def on_train_begin(self: Any, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.callbacks is not None or self.model is not fit.model:
            return original(self, *args, **named)
        if fit.saved is not None:
            prepare(fit)
            fit.restore_variables()
            _resize(session, fit)
            session.context.restored()
        fit.callbacks = self
        result = original(self, *args, **named)
        session.guarded("watching callbacks", lambda: fit.watch(self.callbacks))
        session.guarded("reading the pipeline", lambda: pipelines.examine(session, fit))
        return result

    return on_train_begin


def _resize(session: Session, fit: Fit) -> None:
    batch = fit.batch()
    before = fit.past.resize(batch)
    if before:
        session.context.note("resume", words.RESIZED % (batch, before))


def _epoch_end(session: Session, original: Any) -> Any:
    def on_epoch_end(self: Any, epoch: int, *args: Any, **named: Any) -> Any:
        fit = session.fit
        if fit is None or fit.callbacks is not self:
            return original(self, epoch, *args, **named)
        fit.count(session.context.index)  # now: a fit inside the callbacks numbers its own batches
        result = original(self, epoch, *args, **named)
        session.epoch_ended(fit, epoch)
        return result

    return on_epoch_end

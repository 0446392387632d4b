"""The hooks that are common to all versions of Keras: fit, the callback list, the first data iterator of a fit.

No callback is added: on torch and JAX one more would move all callbacks to the main thread.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any, Callable

from . import announcements, object_kinds
from .fit import callbacks_of
from .fit_call import FitCall, GivenGenerator

if TYPE_CHECKING:
    from .fit import Fit
    from .fit_session import CheckpointSession

BACKUP = "BackupAndRestore"
Started = Callable[[dict[str, Any], int], dict[str, Any]]
OfFit = Callable[["Fit"], None]


def patch_fit(session: CheckpointSession, owner: Any, started: Started) -> bool:
    """Wrap `owner.fit`; `started(arguments, epoch)` returns the arguments with which it begins at `epoch`."""
    return bool(session.context.wrap(owner, "fit", functools.partial(_fit, session, started)))


def patch_callbacks(session: CheckpointSession, owner: Any, prepare: OfFit, advance: OfFit) -> None:
    """Wrap the class that calls all callbacks; `prepare`, `advance`: Session.begins.

    The end of a batch is not wrapped here: the hook that counts beats calls `session.batch_ended` when it is needed.
    """
    wrap = session.context.wrap
    wrap(owner, "on_train_begin", functools.partial(_train_begin, session, prepare, advance))
    wrap(owner, "on_epoch_begin", functools.partial(_epoch_begin, session))
    wrap(owner, "on_epoch_end", functools.partial(_epoch_end, session))


def patch_iterator(
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
        asked: dict[str, Any] = {}
        try:
            asked = dict(signature.bind(self, *args, **named).arguments)
        except TypeError:
            pass
        if not asked:  # behind the `except`: else the original's error would have this one as its context
            return original(self, *args, **named)
        asked.pop(next(iter(signature.parameters)))  # self: other hooks need it as a positional argument
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
        call = FitCall(
            self,
            callbacks,
            validation,
            first,
            epochs,
            site,
            why,
            start,
            skip,
            {**whole, **asked},
            given.forget,
        )
        return session.run(call)

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


def _train_begin(
    session: CheckpointSession, prepare: OfFit, advance: OfFit, original: Any
) -> Callable[..., Any]:
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

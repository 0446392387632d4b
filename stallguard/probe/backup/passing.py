"""Getting the data of a resumed fit to where it was: the same openings, the same draws, nothing trained.

A tf.data shuffle takes new seeds whenever an iterator opens, a PyDataset reorders itself at an epoch's end, a
generator goes on where it was: so the epochs that are done are gone through once more without drawing, and
then as many batches are drawn as the interrupted run had drawn from its last iterator.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from . import randomness, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .session import Session


def epoch(session: Session, fit: Fit, iterator: Any, original: Any) -> Iterator[Any]:
    """Return what yields as Keras' generator of one epoch does; in the first epoch of a resumed fit, from its place on.

    Code of ours runs at the first batch and after the last; between them Keras' own generator does: a training step
    empties the caches, and each call in Python then costs microseconds.
    """
    stream = original(iterator)
    return chain(_first(session, fit, iterator, original, stream), stream, _completed(fit))


def _first(session: Session, fit: Fit, iterator: Any, original: Any, stream: Any) -> Iterator[Any]:
    """Yield the epoch's first item; Keras opens one iterator an epoch, so that its source is that of them all."""
    resuming = fit.saved is not None and not fit.passed
    if resuming:
        fit.passed = True
        session.guarded("passing over epochs", lambda: _earlier_epochs(fit, iterator, original))
    before = randomness.capture()
    fit.complete = False
    item = next(stream, None)
    if resuming and item is not None:
        item = session.guarded("passing over batches", lambda: _place(session, fit, item, stream))
    if item is None:
        stream.close()
    else:
        fit.opening(item[-1], before)
        yield item


def _completed(fit: Fit) -> Iterator[Any]:
    """Yield nothing: the epoch came to its count of batches."""
    fit.complete = True
    yield from ()


def _earlier_epochs(fit: Fit, iterator: Any, original: Any) -> None:
    fit.restore_opening()
    with _no_workers(iterator.data_adapter):
        for end in fit.past.facts["ends"]:
            _pass_epoch(fit, iterator, original, end)
    fit.restore_data()
    fit.restore_opening()


def _pass_epoch(fit: Fit, iterator: Any, original: Any, complete: bool) -> None:
    """Go through one epoch without drawing a batch."""
    stream = original(iterator)
    for item in stream:
        fit.opening(item[-1], {})
        if not complete:
            stream.close()
            _cut_short(fit, iterator)


def _cut_short(fit: Fit, iterator: Any) -> None:
    """Do what Keras does where the data end before the epoch's count (EpochIterator.catch_stop_iteration)."""
    if iterator._num_batches is None:
        iterator._num_batches = fit.past.facts["length"]
    iterator._current_iterator = None
    iterator.data_adapter.on_epoch_end()


@contextmanager
def _no_workers(adapter: Any) -> Iterator[None]:
    """Keep a PyDataset's workers from loading batches that nobody takes."""
    enqueuer = getattr(adapter, "enqueuer", None)
    if enqueuer is not None:
        adapter.enqueuer = None
    try:
        yield
    finally:
        if enqueuer is not None:
            adapter.enqueuer = enqueuer


def _place(session: Session, fit: Fit, item: Any, stream: Any) -> Any:
    """Draw what was drawn, and return the item of the first batch that is not trained yet (None: no more)."""
    draw(session, fit, item[-1])
    fit.restore_metrics()
    for _ in range(fit.executions):
        item = next(stream, None)
    return item


def draw(session: Session, fit: Fit, source: Any) -> None:
    """Draw from `source` what the interrupted run had drawn, and restore the rest of its state."""
    saved = fit.past
    fit.passed = True
    # At an epoch's beginning an iterator of its own has nothing drawn from it.
    fresh = source is not fit.source and not saved.executions
    fit.turn(source)
    fit.executions, fit.epoch = saved.executions, saved.epoch
    fit.opened = randomness.capture() if fresh else saved.random("open")
    fit.drawn = 0 if fresh else saved.drawn
    with session.context.phase("input"):
        for _ in range(fit.drawn):
            next(source)
            session.context.add("skipped")
            session.context.moved()
    fit.restore_randomness(randomness.capture())
    session.context.note(
        "resume", words.resumed(fit.ordinal, saved.epoch, saved.executions * fit.per_execution)
    )

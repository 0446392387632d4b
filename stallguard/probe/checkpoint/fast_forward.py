"""Getting the data of a resumed fit to where it was: the same openings, the same draws, nothing trained.

A tf.data shuffle takes new seeds whenever an iterator opens, a PyDataset reorders itself at an epoch's end, a generator
goes on where it was: so the epochs that are done are gone through once more, without drawing if opening is enough
(pipelines.must_be_drawn), and then as many batches are drawn as the interrupted run had drawn from its last iterator.
Each batch of which a fingerprint was kept is compared with it.

What the pipeline itself raises leaves the fit as it would have left it in training.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from . import announcements, pipelines, random_state
from .saved_generation import StartOver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .fit_session import Session


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
    now = entered = random_state.capture()
    if resuming:
        fit.passed = True
        finished_epochs(session, fit, iterator, original)
        if fit.past.seam and iterator.steps_per_epoch is None:  # opens now, as it would have
            random_state.restore(entered)
        now = random_state.capture()
    else:
        session.guarded("noting the pipeline's state", fit.note_data)
    fit.complete = False
    item = next(stream, None)
    session.openings.epoch()
    if resuming and item is not None:
        draw(session, fit, item[-1], now, entered)
        for _ in range(fit.executions):  # those that were trained; None: the epoch has no more
            item = next(stream, None)
    source = item[-1] if item is not None else None
    if resuming and hasattr(fit.model, "jax_state_sync"):
        item = _with_its_batch(fit, item)
    if item is None:
        stream.close()
    else:
        fit.opening(source, now)
        yield item


def _completed(fit: Fit) -> Iterator[Any]:
    """Yield nothing: the epoch came to its count of batches."""
    fit.complete = True
    yield from ()


def finished_epochs(session: Session, fit: Fit, iterator: Any, original: Any) -> None:
    """Go through the epochs that are done, and leave the pipeline as the saved iterator found it when it opened."""
    saved = fit.past
    drawing = saved.verified and pipelines.must_be_drawn(iterator, fit.readable())
    random_state.restore(saved.random("open"))
    with _no_workers(iterator.data_adapter):
        for number, (complete, batches) in enumerate(saved.ends):
            _pass_epoch(session, fit, iterator, original, complete, batches if drawing else 0)
            repeat_others(session, fit, number + 1)
    fit.restore_data()
    random_state.restore(saved.random("open"))


def repeat_others(session: Session, fit: Fit, epochs: int) -> None:
    """Open what was opened besides, in the epoch before."""
    others = fit.past.facts["others"]
    if epochs < len(others):
        session.openings.repeat(others[epochs])


def _pass_epoch(
    session: Session, fit: Fit, iterator: Any, original: Any, complete: bool, batches: int
) -> None:
    """Go through one epoch, and draw so many batches of it."""
    stream = original(iterator)
    for number, item in enumerate(stream):
        if not number:
            fit.opening(item[-1], {})
            session.openings.epoch()
        pass_over(session, fit, item[-1], min(batches, fit.per_execution))
        batches -= fit.per_execution
        if not complete and batches <= 0:
            stream.close()
            _cut_short(fit, iterator)
            break


def pass_over(session: Session, fit: Fit, source: Any, batches: int) -> None:
    """Draw batches of an epoch that is done; the pipeline's own errors pass."""
    for _ in range(batches):
        next(source)
        fit.drawn += 1
        session.passed_over()


def _cut_short(fit: Fit, iterator: Any) -> None:
    """Do what Keras does when the data end before the epoch's count (EpochIterator.catch_stop_iteration)."""
    if iterator._num_batches is None:
        iterator._num_batches = fit.past.facts["length"]
    iterator._current_iterator = None
    iterator.data_adapter.on_epoch_end()


@contextmanager
def _no_workers(adapter: Any) -> Iterator[None]:
    """Keep a PyDataset's workers from loading batches that are not drawn."""
    enqueuer = getattr(adapter, "enqueuer", None)
    if enqueuer is not None:
        adapter.enqueuer = None
    try:
        yield
    finally:
        if enqueuer is not None:
            adapter.enqueuer = enqueuer


def _with_its_batch(fit: Fit, item: Any) -> Any:
    """Return the item with its first batch drawn already; raises StartOver if the epoch has none left.

    The loop of Keras on JAX reads `logs` after an epoch, which has a value only if a batch was trained in this call.
    """
    batch = next(item[-1], None) if item is not None else None
    if batch is None:
        raise StartOver(announcements.NO_BATCH_LEFT % (fit.epoch + 1), seam=True)
    return (*item[:-1], chain([batch], item[-1]))


def draw(session: Session, fit: Fit, source: Any, now: dict[str, Any], entered: dict[str, Any]) -> None:
    """Draw from `source` what the interrupted run had drawn, and restore the rest of its state.

    `now`: the generators before `source` opened; `entered`: as the framework's loop came to this epoch.  Raises
    StartOver if the batches are others, and what the pipeline raises.
    """
    saved = fit.past
    fit.passed = True
    # At an epoch's beginning an iterator of its own has nothing drawn from it.
    fresh = source is not fit.source and saved.seam
    drawn = fit.drawn if source is fit.source else 0  # of the epochs that are done, already
    fit.turn(source)
    fit.executions, fit.epoch = saved.executions, saved.epoch
    fit.opened = now if fresh else saved.random("open")
    fit.data_opened = (
        (saved.facts["data"], [array.copy() for array in saved.arrays]) if saved.facts["data"] else ([], [])
    )
    fit.drawn = 0 if fresh else saved.drawn
    first = fit.drawn - fit.executions * fit.per_execution  # of this epoch, among the draws from the source
    with session.context.phase("input"):
        for index in range(drawn, fit.drawn if saved.verified else 0):
            try:
                batch = next(source)
            except StopIteration:
                raise StartOver(announcements.ENDED % (index, fit.drawn), seam=True) from None
            session.passed_over()
            session.compare(fit, "%d:%d" % (fit.epoch, index - first), [batch])
    if not fresh:
        _restore_generators(fit, source, entered)
    fit.restore_uses()
    fit.restore_metrics()
    session.resumed(fit)


def _restore_generators(fit: Fit, source: Any, entered: dict[str, Any]) -> None:
    """Set the generators as they were at the save, except those that the pipeline draws from ahead of the training.

    A tf.data pipeline that draws from Python's or numpy's own generator does so ahead: a generator that moved since the
    iterator opened is where it must be.  Other pipelines draw in step, and the save knows their place.  Between two
    epochs the save's was restored before the callbacks saw the next one begin: they may have drawn since.
    """
    saved, ahead = fit.past, hasattr(source, "element_spec")
    after, opened = random_state.capture(), saved.random("open")
    now = entered if saved.seam else saved.random("now")
    theirs = {name for name in ("python", "numpy") if ahead and not random_state.same(opened, after, name)}
    random_state.restore({name: state for name, state in now.items() if name not in theirs})

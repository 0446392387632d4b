"""Moves the data of a resumed fit to their position: the same openings and draws as before, without training.

A tf.data shuffle takes new seeds each time an iterator opens, a PyDataset reorders itself at an epoch's end, and a
generator continues from its position.  So the finished epochs are run through again, without drawing if opening is
enough (pipelines.must_be_drawn), and then as many batches are drawn as the interrupted run had drawn from its last
iterator.  Each batch that has a kept fingerprint is compared with it.

An exception of the pipeline itself is raised from the fit, as it would be in training.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from .. import patches
from . import announcements, fit_start, pipelines, random_state, tensors
from .saved_generation import StartOver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fit import Fit
    from .fit_session import CheckpointSession


def epoch(session: CheckpointSession, fit: Fit, iterator: Any, original: Any) -> Iterator[Any]:
    """Return an iterator over one epoch like Keras' generator; in the first epoch of a resumed fit, from its position.

    The probe's code runs only at the first batch and after the last; between them Keras' own generator runs.  A
    training step empties the processor's caches, so each further call in Python would cost microseconds.
    """
    stream = original(iterator)
    return chain(_first(session, fit, iterator, original, stream), stream, _completed(fit))


@patches.yielding
def _first(session: CheckpointSession, fit: Fit, iterator: Any, original: Any, stream: Any) -> Iterator[Any]:
    """Yield the first item, which has the source of all.  Raises StartOver if an epoch on JAX has no batch left."""
    resuming = fit.saved is not None and not fit.passed
    now = random_state.capture()
    if resuming:
        session.digested(fit.enter)
        session.guarded("shortening files", fit.files.draw_again)
        fit.passed = True
        finished_epochs(session, fit, iterator, original)
        now = random_state.capture()
    elif not fit.continues():
        session.guarded("noting the pipeline's state", lambda: session.digested(fit.note_data))
    fit.complete = False
    item: Any = next(stream, None)
    session.openings.epoch()
    if resuming and item is not None:
        draw(session, fit, item[-1], now)
        for _ in range(fit.executions):  # those that were trained; None: the epoch has no more
            item = next(stream, None)
    source = item[-1] if item is not None else None
    if resuming and hasattr(fit.model, "jax_state_sync"):
        # The loop of Keras on JAX reads `logs` after an epoch, which has a value only if a batch was trained in this
        # call: so the first batch is drawn here.
        batch = next(item[-1], None) if item is not None else None
        if batch is None:
            raise StartOver(announcements.NO_BATCH_LEFT % (fit.epoch + 1), between_epochs=True)
        item = (*item[:-1], chain([batch], item[-1]))
    if item is None:
        stream.close()
    else:
        fit.opening(source, now)
        yield item


def _completed(fit: Fit) -> Iterator[Any]:
    fit.complete = True
    yield from ()


def finished_epochs(session: CheckpointSession, fit: Fit, iterator: Any, original: Any) -> None:
    """Run through the finished epochs, with the state that the saved iterator opened with just before that.

    With `repeat` and `steps_per_epoch` one iterator spans epochs, and is drawn from since its opening: what its
    pipeline has drawn ahead of the training is in no later state.
    """
    saved = fit.past
    drawing = saved.verified and pipelines.must_be_drawn(iterator, fit.readable())
    opened_after = saved.facts.get("opened_after", len(saved.ends))
    adapter = iterator.data_adapter
    workers = getattr(adapter, "enqueuer", None)
    first = compares_first(fit, iterator, bool(drawing))
    if not first:
        random_state.restore(saved.random("open"))
    if workers is not None:
        adapter.enqueuer = None  # the workers of a PyDataset must not load batches that are not drawn
    try:
        for number, (complete, batches) in enumerate(saved.ends):
            if number == opened_after and not first:
                open_again(session, fit, saved=True)
            draws = drawing or (saved.verified and number >= opened_after)
            _pass_epoch(session, fit, iterator, original, complete, batches if draws else 0, first)
            first = False
            repeat_others(session, fit, number + 1)
    finally:
        if workers is not None:
            adapter.enqueuer = workers
    if fit.skipping is not None:  # else the threads of its iterator would go on to draw
        fit.source = iterator._current_iterator = None
    if opened_after >= len(saved.ends):
        open_again(session, fit, saved=not saved.between_epochs or fit.skipping is not None)


def open_again(session: CheckpointSession, fit: Fit, saved: bool) -> None:
    """Restore the state with which an iterator opens.

    `saved`: that of the saved iterator.  Otherwise the save was made between two epochs, and the next iterator opens
    with what the callbacks of the next epoch's begin have left.
    """
    if saved:
        session.digested(fit.restore_opening)
        session.guarded("restoring files", lambda: fit.files.data_open(again=True))
    else:
        fit.restore_entered()
        session.guarded("restoring files", fit.files.drawn_again)
        session.guarded("noting the pipeline's state", lambda: session.digested(fit.note_data))


def repeat_others(session: CheckpointSession, fit: Fit, epochs: int) -> None:
    """Open the other pipelines that were opened before the epoch of this number, and after the one before it."""
    others = fit.past.facts["others"]
    if epochs < len(others):
        session.openings.repeat(others[epochs])


def compares_first(fit: Fit, iterator: Any, drawing: bool) -> bool:
    """Return whether the first batch of a finished fit is drawn to be compared; set the generators for that.

    The script's callbacks can have drawn between the start of the fit and the opening of its data, and do not begin
    now.  If the generators start as they did, they are set to their state at that opening.
    """
    then: Any = fit.past.identity.get("start")
    now = fit.start
    if fit.skipping is None or fit.first_batch in ("", tensors.RESIZED) or not now or not fit_start.is_known(then):
        return False
    adapter = pipelines.adapter_of(iterator)
    races = getattr(adapter, "enqueuer", None) is not None and getattr(adapter, "shuffle", False)
    resized = then["rows"] != now["rows"] or fit.past.facts["batch"] != fit.batch()
    if races or resized or (now["whole"] and not drawing and not pipelines.of_arrays(iterator)):
        return False
    if then["random"] == now["random"]:
        random_state.restore(fit.first_opened)
    return True


def _pass_epoch(
    session: CheckpointSession, fit: Fit, iterator: Any, original: Any, complete: bool, batches: int, first: bool
) -> None:
    batches = max(batches, int(first))
    stream = original(iterator)
    for number, item in enumerate(stream):
        if not number:
            fit.opening(item[-1], {})
            session.openings.epoch()
        pass_over(session, fit, item[-1], min(batches, fit.per_execution), first and not number)
        batches -= fit.per_execution
        if not complete and batches <= 0:
            stream.close()
            # What EpochIterator.catch_stop_iteration does if the data end before the epoch's number of batches.
            if iterator._num_batches is None:
                iterator._num_batches = fit.past.facts["length"]
            iterator._current_iterator = None
            iterator.data_adapter.on_epoch_end()
            break


def pass_over(session: CheckpointSession, fit: Fit, source: Any, batches: int, first: bool = False) -> None:
    """Draw batches of a finished epoch; the pipeline's own errors are raised.

    `first`: compare the first of them with that of the finished fit.  Raises StartOver if it differs, and if the data
    end earlier than they did.
    """
    for index in range(batches):
        with session.context.own_work():
            batch = next(source, None)
        if batch is None and not first:
            drawn = announcements.counted(fit.drawn, "batch", "batches")
            raise StartOver(announcements.ENDED % (drawn, fit.drawn + batches - index), between_epochs=True)
        if first and not index:
            session.compare_first(fit, batch)
        fit.drawn += 1
        session.passed_over()


def draw(session: CheckpointSession, fit: Fit, source: Any, now: dict[str, Any]) -> None:
    """Draw from `source` what the interrupted run had drawn, and restore the rest of its state.

    `now`: the generators before `source` opened.  Raises StartOver if the batches differ, and what the pipeline raises.
    """
    saved = fit.past
    fit.passed = True
    # Between two epochs, nothing has been drawn from the iterator of the next one.
    fresh = source is not fit.source and saved.between_epochs
    drawn = fit.drawn if source is fit.source else 0  # drawn already, in the finished epochs
    fit.turn(source)
    fit.executions, fit.epoch = saved.executions, saved.epoch
    fit.opened = now if fresh else saved.random("open")
    fit.opened_after = len(saved.ends) if fresh else saved.facts.get("opened_after", len(saved.ends))
    if not fresh:
        arrays = [array.copy() for array in saved.arrays] if saved.facts["data"] else []
        fit.data_opened = saved.facts["data"], arrays
    fit.drawn = 0 if fresh else saved.drawn
    first = fit.drawn - fit.executions * fit.per_execution  # this epoch's first draw
    with session.context.own_work(), session.context.phase("input"):
        for index in range(drawn, fit.drawn if saved.verified else 0):
            try:
                batch = next(source)
            except StopIteration:
                raise StartOver(
                    announcements.ENDED % (announcements.counted(index, "batch", "batches"), fit.drawn),
                    between_epochs=True,
                ) from None
            session.passed_over()
            session.compare(fit, "%d:%d" % (fit.epoch, index - first), [batch])
    if not fresh:
        repeat_others(session, fit, len(saved.ends) + 1)  # by callbacks of this epoch's batches
        changed = session.digested(fit.restore_trained)
        if changed:
            text = announcements.AHEAD % announcements.listed(changed)
            session.context.say("inexact", "fit %d: %s" % (fit.ordinal, text))
        _restore_generators(fit)
    fit.restore_uses()
    fit.restore_metrics()
    written = session.guarded("restoring files", fit.files.drawn_again)
    if written and pipelines.draws_ahead(fit.iterator):
        text = announcements.LINES_AHEAD % announcements.listed(written)
        session.context.say("inexact", "fit %d: %s" % (fit.ordinal, text))
    session.resumed(fit)


def _restore_generators(fit: Fit) -> None:
    """Set the generators to their state at the save, except those from which the pipeline draws ahead of the training.

    A tf.data pipeline that draws from a generator of the process does so ahead: a generator that changed since the
    iterator opened has the right state.  Other pipelines draw with the training, and the save has their state.
    After a save between two epochs that state was restored before the callbacks of the next epoch's begin, which can
    have drawn since: what they left is then the state to set.
    """
    saved, ahead = fit.past, pipelines.draws_ahead(fit.iterator)
    after, opened = random_state.capture(), saved.random("open")
    now = fit.entered_random if saved.between_epochs else saved.random("now")
    theirs = {name for name in after if ahead and not random_state.same(opened, after, name)}
    random_state.restore({name: state for name, state in now.items() if name not in theirs})

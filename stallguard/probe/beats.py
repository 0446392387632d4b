"""Stores counter, phase and times of the hooks in the mapped record.

No lock, and no system call except the clock.  The end of a batch in Keras' loop is the hot path.  A training step
empties the processor's caches, so each cache line that this path touches costs about as much as a hundred instructions.
While batches follow one another (`hot`), it stores two times and an index in this object and nothing else; if Keras
fetches batches in Python, the begin of a step stores one time more, and that it is a step.  The sender
derives the fields of the page from them before it sends (`publish`): they are up to 150 ms old.  If the sender does not
run, the hook publishes them itself after STALE.  Every other event ends this state (`settle`).

The loops of other libraries, and the script's own, follow the same rule by other means: for STALE after the sender has
published (`fresh_until`), an event inside a step, its input and what is between stores its time, its phase and the
count of events in this object alone.  Any other phase is in the page at once: a save can hold the interpreter's lock
for a minute, and no sender can say then that it is one.  So is the count of batches, for a process that crashes.

Two threads that store at the same instant can lose one of `changes`; no decision depends on a single one.  Nothing here
blocks or prints.

The clock is nanoseconds without the machine's sleep, as the supervisor's clock (host/clock.py).  On macOS
`time.monotonic_ns` is that clock today (mach_absolute_time).  A later Python can choose one that counts sleep, and the
training's Python is not the supervisor's, so the clock is named explicitly there.  That costs about 80 ns more a call
(`timeit` on a two-core Linux machine: 130 and 210 ns).
"""

from __future__ import annotations

import sys
import time
from _thread import get_ident

from . import patches, wire
from .batch_count import Credit, LoopPosition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any, Callable

    BatchEnd = Callable[[Any, int, Any], Any]
    AfterBatch = Callable[[Any, Any], None]

if sys.platform == "darwin":
    # importing functools itself takes five milliseconds of each start
    from _functools import partial  # type: ignore[import-not-found]

    monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_UPTIME_RAW)
else:
    monotonic_ns = time.monotonic_ns  # CLOCK_MONOTONIC, which does not count suspend on Linux


(IMPORTING, IDLE, TRACING, FIRST_RUN, STEP, BETWEEN, INPUT, EPOCH_START, EPOCH_END, VALIDATION, PREDICTION,
 CHECKPOINT, FINISHING, NAMED) = range(len(wire.PHASES))  # fmt: skip
(NONE, CALLBACKS, ON_BATCH, FUNCTION, TAPE, OPTIMIZER, SESSION, TORCH, POLL, HAND,
 MLX) = range(len(wire.SOURCES))  # fmt: skip

STALE = 200_000_000  # ns that the page can lag behind the events of steps if the sender does not publish

_PHASE, _PHASE_NS, _PROGRESS_NS = (wire.SLOT[n] for n in ("phase", "phase_ns", "progress_ns"))
_CHANGES, _LONGEST_NS, _LONGEST_PHASE = (wire.SLOT[n] for n in ("changes", "longest_ns", "longest_phase"))
_BEATS, _BEAT_NS, _FIT_BEATS, _SOURCE = (wire.SLOT[n] for n in ("beats", "beat_ns", "fit_beats", "source"))
_BATCH, _BATCHES, _FITS = (wire.SLOT[n] for n in ("batch", "batches", "fits"))
_INPUT_NS, _STEP_NS, _TRACES, _FLAGS = (wire.SLOT[n] for n in ("input_ns", "step_ns", "traces", "flags"))
_EPOCH, _EPOCHS, _TOTAL = (wire.SLOT[n] for n in ("epoch", "epochs", "total"))
_NO_LIST = object()  # the value of `hot` that is no CallbackList: the state is off
# Phases that go on after a training call that was made in them; after any other the phase is BETWEEN.
_KEPT = frozenset((NAMED, VALIDATION, PREDICTION, CHECKPOINT, EPOCH_START, EPOCH_END))
# Phases in which a graph is run as soon as it is traced.
_RUNS_NEXT = frozenset((STEP, VALIDATION, PREDICTION, FIRST_RUN))


class Beats:
    """Writes the fields of the record that the hooks count; `slots` is the mapped page."""

    __slots__ = ("_base", "_beats", "_changes", "_credit", "_last", "_longest", "_loop", "_main", "_phase",
                 "_thread", "ahead", "attention", "began", "calls", "claim", "claimed", "cold", "due", "ended",
                 "fitting", "fresh_until", "hot", "index", "input", "inside", "own", "own_saves",
                 "own_work", "plain", "polled", "restores", "saving", "slots", "step", "stepping", "stirred", "stride",
                 "tracing")  # fmt: skip

    def __init__(self, slots: memoryview) -> None:
        self.claim: Callable[[], object] = str  # called once, as training begins; `str` has no effect
        self.ahead = STEP  # the phase after a batch: INPUT if Keras fetches the next one in Python
        self.begin(slots)

    def begin(self, slots: memoryview) -> None:
        """Count from zero into `slots`: at the start, and again in a forked process that has not trained."""
        self.slots = slots
        self.claimed = False  # `claim` was called
        self._last = monotonic_ns()  # when the phase was entered; read here, it costs less than in the page
        self._longest = self._beats = self._changes = 0
        self._phase = slots[_PHASE]
        # The CallbackList whose batches follow one another with nothing else between.
        self.hot: Any = _NO_LIST
        self.own: Any = None  # the CallbackList of the outermost fit
        # While hot: when its last batch ended; when its callbacks returned, or the step after them began, and which.
        self.ended = self.began = self._last
        self.stepping = False
        self._base = 0  # beats before the batch of index 0, while hot
        self.due = 0  # ns: when the hot path must publish or call `after_batch`
        self.fresh_until = 0  # ns: until then events inside steps are not stored in the page
        self.stirred = False  # there was progress that has no time yet
        self._loop = LoopPosition()
        self.plain = False  # each end of a batch in Keras' loop is one batch
        self.index = -1  # Keras' own number of the batch that ended last in this epoch, -1 before the first
        self.step = self.input = 0  # ns inside steps, and spent waiting for input, summed
        self.stride = 1  # batches that Keras runs at once
        self.cold = False  # the next batch of Keras compiles what it runs, and no hook observes that
        # After the batch is looked at what there is to do; set by the sender, once a second and on an order.
        self.attention = False
        self.fitting = 0  # open Keras loops (fit, evaluate, predict): only they count then
        self.inside = 0  # the thread inside a training call (function, train_on_batch, apply), 0: none
        self._credit = Credit()  # which hook counts the batches outside of Keras' loops
        self.calls = 0  # training calls that ended outside of Keras' loops, counted or not
        self.polled = False  # the poll thread counts: whole loops run inside one call
        self.restores = 0  # checkpoints written or read: the iterations can have jumped
        self.tracing = self.saving = False
        self.own_work = self.own_saves = 0  # open calls in which the probe works in that thread; its saves
        self._main = self._thread = get_ident()  # `_thread`: the one that trains

    def mark_training(self) -> None:
        """Mark this process as training: processes that it starts from now on are its workers."""
        if not self.claimed:
            self.claimed = True
            self.claim()

    def enter(self, phase: int) -> int:
        """Set the phase; return the previous one, for `leave`."""
        if self.hot is not _NO_LIST:
            self.settle()
        now = monotonic_ns()
        before = self._phase
        if now - self._last > self._longest:
            self._pause(now - self._last, before)
        self._last = now
        self._changes += 1
        self._phase = phase
        if now > self.fresh_until or not (STEP <= phase <= INPUT and STEP <= before <= INPUT):
            self._store()
        return before

    def _store(self) -> None:
        """Store the phase in the page."""
        slots = self.slots
        slots[_PHASE] = self._phase
        slots[_PHASE_NS] = slots[_PROGRESS_NS] = self._last
        slots[_CHANGES] = self._changes + self._beats

    def leave(self, before: int) -> None:
        """Set the previous phase again; IMPORTING ends with the first event."""
        self.enter(before or IDLE)

    def _pause(self, gap: int, phase: int) -> None:
        """Store the longest pause since the previous record."""
        self.slots[_LONGEST_NS] = self._longest = gap
        self.slots[_LONGEST_PHASE] = phase

    def reported(self, longest: int) -> None:
        """Reset the longest pause after a record with it was sent; a longer one since stays for the next record."""
        if self._longest <= longest:
            self.slots[_LONGEST_NS] = self._longest = 0

    def is_training_thread(self) -> bool:
        """Return whether this is the thread that trains: the phase is that of this thread only."""
        return get_ident() == self._thread

    @property
    def is_between_epochs(self) -> bool:
        """Whether an epoch has ended, and none has begun since."""
        return self._phase == EPOCH_END

    @property
    def training_thread(self) -> int:
        """The thread that trains, as threading.get_ident gives it."""
        return self._thread

    def moved(self) -> None:
        """Count progress that is neither a batch nor a phase of the training thread; the sender gives it a time."""
        self.stirred = True  # before it is counted: who sees the count can give it a time
        self._changes += 1

    def date_progress(self, now: int) -> None:
        """Give progress that has no time of its own the time `now` (ns)."""
        if self.stirred:
            self.stirred = False
            self.slots[_PROGRESS_NS] = max(self.slots[_PROGRESS_NS], now)

    def published(self) -> None:
        """Note that the sender has published, and is to do so again soon."""
        self.fresh_until = monotonic_ns() + STALE

    def request_attention(self) -> None:
        """Have `after_batch` called at the end of the next batch."""
        self.attention = True
        self.due = 0

    def settle(self) -> None:
        """End the hot state, if it is on, and store its values.  It calls nothing, so no other thread can run."""
        if self.hot is _NO_LIST:
            return
        self.hot, self.due = _NO_LIST, 0
        inside = self.ended > self.began
        self._beats = self._base + self.index + 1 + inside
        self._last = self.ended if inside else self.began
        between = inside or self._beats == self._loop.last
        self._phase = BETWEEN if between else STEP if self.stepping else self.ahead
        slots = self.slots
        slots[_PHASE] = self._phase
        slots[_BEATS] = self._beats
        slots[_BEAT_NS] = self.ended

    def publish(self) -> None:
        """Store the fields that follow from the values in this object; the sender calls this before each record."""
        now = monotonic_ns()
        slots = self.slots
        beats, last = self._beats, self._last
        if self.hot is not _NO_LIST:
            ended, began, beats = self.ended, self.began, self._base + self.index + 1
            inside = ended > began
            beats += inside
            last = ended if inside else began
            slots[_BEATS] = max(slots[_BEATS], beats)
            slots[_BEAT_NS] = max(slots[_BEAT_NS], ended)
            between = inside or beats == self._loop.last
            slots[_PHASE] = BETWEEN if between else STEP if self.stepping else self.ahead
            if self.hot is _NO_LIST:
                slots[_PHASE] = self._phase  # the training thread has entered this phase meanwhile
            elif inside and now - ended > self._longest:
                self._pause(now - ended, BETWEEN)
        else:
            slots[_PHASE] = self._phase
            if self._beats:
                slots[_BEAT_NS] = max(slots[_BEAT_NS], self.ended)
        self.date_progress(now)
        slots[_PHASE_NS] = max(slots[_PHASE_NS], last)
        slots[_PROGRESS_NS] = max(slots[_PROGRESS_NS], last)
        slots[_CHANGES] = self._changes + beats
        slots[_STEP_NS], slots[_INPUT_NS] = self.step, self.input
        fit, epoch = self._loop.fit, self._loop.epoch
        if fit >= 0:
            slots[_FIT_BEATS] = beats - fit
        if epoch is not None:
            slots[_BATCH] = beats - epoch
        if self.hot is not _NO_LIST and not self.attention:
            self.due = now + STALE

    def flag(self, bit: int, on: bool) -> None:
        """Set or clear a wire.FLAG_* bit."""
        flags = self.slots[_FLAGS]
        self.slots[_FLAGS] = flags | bit if on else flags & ~bit

    # --- Keras' own loops -------------------------------------------------------------------------------------

    def fit_begins(self) -> int:
        """Begin a `fit`: from here on its callbacks count."""
        self.mark_training()
        before = self.enter(EPOCH_START)
        self._thread = get_ident()
        self._loop.fit_begins(self._beats)
        slots = self.slots
        slots[_FITS] += 1
        slots[_FIT_BEATS] = slots[_TOTAL] = 0
        slots[_EPOCH] = slots[_BATCH] = -1
        self._credit.forget()
        return before

    def fit_ends(self) -> None:
        """End the fit; its counts stay as they are."""
        self.settle()
        self.publish()
        self._loop.fit_ends()
        self.plain = False

    def epoch_begins(self, epoch: int, epochs: int, batches: int) -> None:
        """Begin an epoch; unknown numbers are -1."""
        self.enter(EPOCH_START)
        before = self._loop.epoch_begins(self._beats, batches)
        self.plain = bool(self.fitting) and self.stride == 1
        slots = self.slots
        slots[_EPOCH], slots[_EPOCHS], slots[_BATCH], slots[_BATCHES] = epoch, epochs, before, batches
        if self._loop.fit >= 0:  # of the same instant as `batch`: see with_last_batches of the supervisor
            slots[_FIT_BEATS] = self._beats - self._loop.fit
        if self.fitting:
            slots[_SOURCE] = CALLBACKS

    def epoch_goes_on(self, before: int) -> None:
        """Note that earlier attempts trained `before` batches of this epoch; of the next one if none has begun."""
        self._loop.goes_on(before)
        self.publish()

    def epoch_begun(self) -> None:
        """Enter the phase before the first batch, after the script's callbacks have begun the epoch."""
        self.enter(FIRST_RUN if self.cold else self.ahead)
        self.cold = False
        self.index = -1

    def around_batch_begin(self, original: BatchEnd) -> BatchEnd:
        """Return a wrapper of `original`, CallbackList.on_train_batch_begin: a batch is fetched, and a step begins."""
        clock = monotonic_ns

        @patches.removes_its_own
        def on_train_batch_begin(callbacks: Any, batch: int, logs: Any = None) -> Any:
            try:
                if callbacks is self.hot:
                    now = clock()
                    if now - self.began > self._longest:
                        self._pause(now - self.began, self.ahead)
                    self.input += now - self.began
                    self.began, self.stepping = now, True
                elif self._phase != FIRST_RUN:
                    self.enter(STEP)
                return original(callbacks, batch, logs)
            except BaseException as error:
                patches.remove(error)
                raise

        return on_train_batch_begin

    def is_fetching(self) -> bool:
        """Return whether Keras fetches a batch in Python: the begin of the step measures that wait."""
        return self.hot is not _NO_LIST and not self.stepping and self.ahead == INPUT

    def around_batch_end(self, original: BatchEnd, after_batch: AfterBatch) -> BatchEnd:
        """Return a wrapper of `original`, CallbackList.on_train_batch_end, that counts the batch and begins the next.

        `after_batch` is called after a batch if `attention` is set.
        """
        clock, count_batch = monotonic_ns, self._count_batch

        @patches.removes_its_own
        def on_train_batch_end(callbacks: Any, batch: int, logs: Any = None) -> Any:
            now = clock()
            try:
                if callbacks is not self.hot:
                    return count_batch(original, after_batch, callbacks, batch, logs)
                gap = now - self.began
                if gap > self._longest:
                    self._pause(gap, STEP)
                self.step += gap
                self.ended = now
                self.slots[_BEATS] = self._base + batch + 1  # exact also if the callbacks crash
                result = original(callbacks, batch, logs)
            except BaseException as error:
                patches.remove(error)
                raise
            now = clock()
            self.index = batch  # after the callbacks, and with no call between: a fit inside them sets it too
            self.began, self.stepping = now, False
            if now > self.due:
                self._publish_and_call(after_batch, callbacks, batch, logs)
            return result

        return on_train_batch_end

    def _count_batch(self, original: BatchEnd, after_batch: AfterBatch, callbacks: Any, batch: int, logs: Any) -> Any:
        """Count a batch outside of the hot state: after another event, or if one call stands for several batches."""
        self.settle()
        self.mark_training()
        now = monotonic_ns()
        gap = now - self._last
        if gap > self._longest:
            self._pause(gap, self._phase)
        if self._phase == STEP:
            self.step += gap
        self._last = self.ended = now
        self._beats += 1 if self.plain else self._batches_ended(batch)
        slots = self.slots
        self._phase = slots[_PHASE] = BETWEEN
        slots[_BEATS] = self._beats
        slots[_BEAT_NS] = now
        result = original(callbacks, batch, logs)
        self._begin_step(callbacks, batch)
        if self.attention:
            after_batch(callbacks, logs)
        return result

    def _begin_step(self, callbacks: Any, batch: int) -> None:
        """Begin the next step after the callbacks of a batch, unless that was the epoch's last; be hot if possible."""
        now = monotonic_ns()
        if now - self._last > self._longest:
            self._pause(now - self._last, self._phase)
        self._last, self.index = now, batch
        if self._beats == self._loop.last:
            return
        self._phase = self.slots[_PHASE] = self.ahead
        if self.plain and callbacks is self.own:
            self._base = self._beats - batch - 1
            self.began, self.stepping = now, False
            self.hot = callbacks

    def _publish_and_call(self, after_batch: AfterBatch, callbacks: Any, batch: int, logs: Any) -> None:
        """Publish, and call `after_batch` if `attention` is set: after a hot batch from `due` on.

        `due` is over if the callbacks ended the hot state, `attention` was set, or the sender does not publish.
        """
        if self.hot is _NO_LIST:
            self._begin_step(callbacks, batch)
        self.publish()
        if self.attention:
            after_batch(callbacks, logs)

    def _batches_ended(self, index: int) -> int:
        """Return how many batches ended, if Keras runs several at once or the script calls the callbacks itself."""
        if not self.fitting:
            credit = self._credit.of(CALLBACKS)
            if credit:
                self.slots[_SOURCE] = CALLBACKS
            return credit
        return self._loop.ended(self._beats, index, self.stride)

    # --- every other loop -------------------------------------------------------------------------------------

    def may_open(self) -> bool:
        """Return whether a call in this thread is a training call: not inside Keras' loop or another training call.

        In the main thread it always is, so that a helper thread that hangs in a call does not hide the training.
        """
        if self.fitting or self.saving:
            return False
        inside = self.inside
        if not inside:
            return True
        me = get_ident()
        return me != inside and me == self._main

    def call_begins(self, phase: int = STEP) -> int:
        """Begin a training call in this thread; return the previous phase, for `call_ends`."""
        self.inside = self._thread = get_ident()
        return self.enter(phase)

    def call_ends(self, before: int, source: int) -> None:
        """End the call and count a batch, unless a hook of a better rank counts the same batches."""
        began = self._last
        self.enter(before if before in _KEPT else BETWEEN)
        self.inside = 0
        self.step += self._last - began
        self.beat(source)

    def call_failed(self, before: int) -> None:
        """End a call that raised, without a batch."""
        self.inside = 0
        self.leave(before)

    def beat(self, source: int, count: int = 1) -> None:
        """Count `count` batches that `source` observed, if that hook counts now."""
        self.calls += count
        if self.fitting:
            # In a Keras loop whose callbacks no hook observes, the script's own calls of `beat` count.
            is_counted_elsewhere = source != HAND or self.slots[_SOURCE] in (CALLBACKS, TORCH)
        else:  # the call around this one counts the batch, or the poll thread
            is_counted_elsewhere = bool(self.inside) or (self.polled and source != HAND)
        if is_counted_elsewhere:
            self.moved()
            return
        credit = self._credit.of(source) * count
        if credit:
            self.add(source, credit)

    def add(self, source: int, count: int) -> None:
        """Add `count` batches."""
        if not self.claimed:
            self.mark_training()
        if self.hot is not _NO_LIST:
            self.settle()
        slots = self.slots
        slots[_BEAT_NS] = slots[_PROGRESS_NS] = monotonic_ns()
        self._beats += count
        slots[_BEATS] = self._beats
        slots[_SOURCE] = source

    # --- parts of a step ----------------------------------------------------------------------------------------

    def trace_ends(self, before: int) -> None:
        """End the tracing of a graph: inside a step the graph's first run follows, which compiles it."""
        self.slots[_TRACES] += 1
        self.leave(FIRST_RUN if before in _RUNS_NEXT else before)

    def input_ends(self, before: int) -> None:
        """End the wait for the next batch: `enter`."""
        if self.hot is not _NO_LIST:
            self.settle()
        now = monotonic_ns()
        gap = now - self._last
        if gap > self._longest:
            self._pause(gap, self._phase)
        self.input += gap
        self._last = now
        self._changes += 1
        self._phase = before or IDLE
        if now > self.fresh_until or not STEP <= before <= INPUT:
            self._store()

    def around_next(
        self, original: Callable[..., Any], begin_feeding: Callable[[], None], ahead: Collection[str] = ()
    ) -> Callable[..., Any]:
        """Return a wrapper of `original`, the `__next__` of a loader: a wait for input, after which a step follows.

        `begin_feeding` is called before the first.  `ahead`: modules that fetch the batch after the one that they
        yield, so that a step follows also the end of the data.
        """
        clock, begins = monotonic_ns, [begin_feeding]

        @patches.removes_its_own
        def __next__(loader: Any) -> Any:  # noqa: N807 - as the original
            waits = False
            if self.hot is _NO_LIST or not self.is_fetching():  # else Keras has begun this wait
                if begins:
                    begins.clear()  # another thread can be here too: it begins twice then
                    begin_feeding()
                waits = get_ident() == self._thread
            if waits:  # as `enter`, and `input_ends` after it: two calls less in each step
                if self.hot is not _NO_LIST:
                    self.settle()
                before, now = self._phase, clock()
                if now - self._last > self._longest:
                    self._pause(now - self._last, before)
                self._last = now
                self._changes += 1
                self._phase = INPUT
                if now > self.fresh_until or not STEP <= before <= INPUT:
                    self._store()
            try:
                batch = original(loader)
            except BaseException as error:
                if waits:
                    is_ahead = not self.fitting and sys._getframe(1).f_globals.get("__name__") in ahead
                    self.leave(STEP if is_ahead else before)
                patches.remove(error)
                raise
            if waits:
                began, now = self._last, clock()
                if now - began > self._longest:
                    self._pause(now - began, self._phase)
                self.input += now - began
                self._last = now
                self._changes += 1
                self._phase = (before or IDLE) if self.fitting and before != BETWEEN else STEP
                if now > self.fresh_until or not STEP <= self._phase <= INPUT:
                    self._store()
            return batch

        return __next__

    # A training step empties the caches, so each function costs one to two microseconds here, each read of the clock
    # half of one (PyTorch on a loaded two-core machine, Python 3.11): what runs in each step of other loops is in one.

    def step_begins(self, *_: Any) -> None:
        """Begin a step in the loop of a library, unless the end of its input has.  The first one compiles."""
        if self.cold or self._phase != STEP:
            self.enter(FIRST_RUN if self.cold else STEP)
            self.cold = False

    def step_ends(self, source: int, following: int | None = None) -> None:
        """End a step, count a batch, and enter BETWEEN.

        `following`: the phase after an update that `source` observed in a loop of the script's own, whose begin no hook
        observes; in a loop of a library, or in a training call, that is progress alone.
        """
        if following is not None:
            if self.fitting or self.inside:
                self.calls += 1
                self.stirred = True
                self._changes += 1
                return
            if not self.claimed or self.polled or self._credit.leader != source or self._credit.held:
                self.beat(source)
                self.enter(following)
                return
        if self.hot is not _NO_LIST:
            self.settle()
        now = monotonic_ns()
        gap = now - self._last
        if gap > self._longest:
            self._pause(gap, self._phase)
        if following is None:
            self.step += gap
        self._last = self.ended = now
        self._phase = BETWEEN if following is None else following
        self._changes += 1
        self.inside = 0
        self.calls += 1
        self._beats += 1
        self.slots[_BEATS] = self._beats
        if now > self.fresh_until:
            self.slots[_SOURCE], self.slots[_BEAT_NS] = source, now
            self._store()

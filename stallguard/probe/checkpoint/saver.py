"""Makes generations: a small one is written at once, a large one by a thread while the training goes on.

A snapshot holds the values of one moment.  TensorFlow copies a variable's buffer when the variable changes, the other
frameworks' values are copied.  So a large checkpoint costs the training the time of a copy in memory; the writer's
thread computes checksums, writes and flushes.  Without enough free memory for the copy it is written at once.

The fingerprint of the batch that is trained next is taken just before that batch is trained, and written beside the
generation.  A resume compares it before it trains.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from _thread import allocate_lock
from collections import deque
from contextlib import suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from .. import native_threads
from ..lookahead import train_function
from . import announcements, encoding, object_state, pipelines, random_state, tensors, variables
from .fit import CALLBACKS, callbacks_of
from .object_walk import VARIABLE
from .saved_generation import FORMAT
from .schedule import SaveReport

if TYPE_CHECKING:
    from ..context import Context
    from ..lookahead import Lookahead
    from .fit import Fit
    from .generations import CheckpointStore
    from .object_walk import Walk
    from .schedule import CheckpointSchedule
    from .sigterm import SigtermHandler

PRINTS = 12  # fingerprints that are kept with a generation, the newest


class FitSnapshot(NamedTuple):
    """What is written: facts, and buffers that do not change while training goes on.

    `largest`: the object of the script that changed and is largest, and its bytes.  `weights`: arrays of what is
    trained; `others`: of the model's and the optimizer's other variables.
    """

    facts: dict[str, Any]
    blobs: list[Any]
    between_epochs: bool
    largest: tuple[str, int]
    weights: list[Any]
    others: list[Any]

    @property
    def size(self) -> int:
        """The bytes of the buffers."""
        return sum(len(blob) for blob in self.blobs)

    def is_finite(self) -> bool:
        """Return whether the model can be trained on from these values.  A mask that is not trained can be infinite."""
        others = all(tensors.is_finite(one, infinite=True) for one in self.others)
        return others and all(map(tensors.is_finite, self.weights))


def take(fit: Fit, most: int, others: list[list[int]], history: Any = None, seconds: float = math.inf) -> FitSnapshot:
    """Return the content of a generation of this moment.  Raises what the frameworks raise.

    `most`: bytes at most of the callbacks' own data.  `others`: Openings.others.  `history`: of a finished fit.
    `seconds`: as for Fit.walk.
    """
    variables.synchronise(fit.model)
    list(fit.model.variables)  # Keras 2 raises if the model is still not built: without them nothing is saved
    finished, between_epochs = history is not None, not fit.executions
    data, state = fit.walk(seconds)
    groups = fit.groups(state, metrics=not between_epochs)
    arrays = [value for group in groups.values() for value in variables.values(group)]
    trained = {id(one) for one in getattr(fit.model, "trainable_variables", ())}
    mine = [*zip([*groups[variables.MODEL], *groups[variables.OPTIMIZER]], arrays)]
    weights = [array for variable, array in mine if id(variable) in trained]
    others_of_model = [array for variable, array in mine if id(variable) not in trained]
    entries, unkept = _entries(fit, state, finished, arrays, most)
    for name in _lost(fit, state, data, groups):
        unkept[name] = "a variable that no attribute holds"
    if not state.complete:
        unkept[announcements.TOO_MANY] = "too many to look at"
    # If the next epoch opens an iterator, nothing has been drawn ahead: the present state is that of its opening.
    opens = between_epochs and (finished or not fit.continues())
    state_of_data = fit.data_at_end if finished else fit.data_state
    kept, values = state_of_data(data) if opens else fit.data_opened
    kept = object_state.moved(kept, len(arrays))
    arrays += values
    since, values = ([], []) if opens else fit.data_since_opening(data)
    since = object_state.moved(since, len(arrays))
    arrays += values
    random = {
        "open": encoding.encode(fit.opened, arrays),
        "now": encoding.encode(random_state.capture(), arrays),
        "first": encoding.encode(fit.first_opened, arrays),
    }
    facts: dict[str, Any] = {
        "format": FORMAT, "identity": fit.identified(), "epoch": fit.epoch, "executions": fit.executions,
        "batches": fit.executions * fit.per_execution,
        "drawn": fit.drawn, "opened_after": len(fit.ends) if opens else fit.opened_after,
        "batch": fit.batch(), "ends": fit.ends, "epochs": fit.epochs,
        "length": getattr(fit.iterator, "_num_batches", getattr(fit.iterator, "_inferred_steps", None)),
        "finished": finished, "stop": between_epochs and bool(getattr(fit.model, "stop_training", False)),
        "groups": [[name, len(group)] for name, group in groups.items()], "entries": entries,
        "unkept": unkept, "draws": _draws(fit), "data": kept, "data_now": since, "random": random, "others": others,
        "first": fit.first_batch,
        "prints": dict(list(fit.prints.items())[-PRINTS:]),
        "logs": None if between_epochs else _logs(fit.logs, arrays),
        "history": encoding.encode(
            [list(getattr(history, "epoch", [])), dict(getattr(history, "history", {}))], arrays
        ),
        "files": fit.files.keep(state, callbacks_of(fit.callbacks)),
        "stays": fit.files.changed(), "named": fit.named,
        "uses": fit.seeds.uses() if fit.seeds is not None else {},
    }  # fmt: skip
    facts["tensors"], blobs = tensors.pack(arrays)
    path = max(state.sizes, key=lambda one: state.sizes[one], default="")
    largest = (path + object_state.made_by(state, path), state.sizes[path]) if path else ("", 0)
    return FitSnapshot(facts, blobs, between_epochs, largest, weights, others_of_model)


def _lost(fit: Fit, state: Walk, data: Walk, groups: variables.Groups) -> list[str]:
    """Return the names of the training function's variables that nothing else leads to, so that no group has them."""
    known = {*state.paths, *data.paths}
    known |= variables.identities([variable for group in groups.values() for variable in group])
    known |= variables.identities([*variables.metrics(fit.model), *random_state.variables()])
    at_once = getattr(fit.model, "_steps_per_execution", None)
    if hasattr(at_once, "read_value"):  # in Keras 2 a variable, which `compile` sets
        known |= variables.identities([at_once])
    slots = (*state.slots.values(), *data.slots.values())
    known |= variables.identities([slot.value for slot in slots if slot.kind == VARIABLE])
    return variables.lost(train_function(fit.model), known)


def _logs(logs: Any, arrays: list[Any]) -> Any:
    """Return the code of what the step of the last batch returned, None if it is not numbers and texts by name."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        array = tensors.value_of(value)
        return array if array.shape else array.item()

    try:
        return encoding.encode(plain(logs), arrays) if isinstance(logs, dict) else None
    except Exception:  # ragged or sparse, for instance; a resume that needs it says that it is not there
        return None


def _draws(fit: Fit) -> list[str]:
    if fit.draws is None and pipelines.draws_masks(fit.model):
        fit.draws = []  # reported already
    elif fit.draws is None:
        fit.draws = variables.random_operations(train_function(fit.model), pipelines.RANDOM_OPS)
    return fit.draws or []


def _entries(fit: Fit, state: Walk, finished: bool, arrays: list[Any], most: int) -> tuple[list[Any], dict[str, str]]:
    baseline = fit.baseline
    if baseline is None:
        return [], {}
    changed = baseline.changed(state)
    entries, unkept = object_state.keep(state, changed, arrays, most, baseline)
    if finished:  # its callbacks will not begin again: what their begin set is kept too
        set_then = [path for path in state.slots if path.startswith(CALLBACKS) or path in fit.set_at_begin]
        others = [path for path in set_then if path not in changed]
        entries += object_state.keep(state, others, arrays, most)[0]
    return entries + object_state.lost(state, baseline.walked, baseline.gone(state)), unkept


SMALL = 8 << 20  # bytes that are written at once; a larger snapshot is written by the thread
LARGE, GROWN = 50e6, 1.3  # bytes from which an object is reported, and its growth until the next report
LAST = 60.0  # s that the last save waits for the previous one


class CheckpointSaver:
    """Makes the generations of one process.  `most`: bytes at most of the callbacks' own data in one."""

    def __init__(
        self,
        context: Context,
        pace: CheckpointSchedule,
        sigterm_handler: SigtermHandler,
        lookahead: Lookahead,
        most: int,
    ) -> None:
        self._context = context
        self._pace = pace
        self._farewell = sigterm_handler
        self._lookahead = lookahead
        self._most = most
        self._writer = Writer(context)
        self._writing = False  # the thread is writing a generation
        self._report = SaveReport(context)
        # A resume uses a generation that lacks state (resume_choice.py).
        self._uses_incomplete = context.settings.checkpoint_inexact == "continue"
        self._reported = LARGE / GROWN  # bytes of the largest object that was reported last

    def begins(self, fit: Fit) -> None:
        """Report as a fit begins that no checkpoint of it can be written, if that is known by now."""
        self._report.begins()
        try:
            with self._context.own_work():
                fit.store.check_room()
        except Exception as error:
            self.complain(error, fit.store)

    def refuse(self, why: str, store: CheckpointStore) -> None:
        """Report that no checkpoints are made of a fit."""
        self._report.refused(why, store.folder)

    def save(self, fit: Fit, others: list[list[int]], history: Any = None, last: bool = False) -> bool:
        """Write a generation, or begin to; an error becomes a note, and an earlier generation is kept.

        Return whether it has all the state that a resume inside the fit needs.
        `others`: Openings.others.  `history`: of a finished fit.  `last`: the process is about to end, so the
        generation is written at once.
        """
        if fit.broken or (self._writing and not last and history is None):
            return False
        began, complete = time.monotonic(), False
        self._farewell.saving = True
        try:
            with self._context.own_work(), self._context.phase("checkpoint"):
                if self._writing:
                    self._writer.finish(LAST)
                seconds, walked = self._pace.allowance(began), time.monotonic()
                snapshot = take(fit, self._most, others, history, seconds)
                self._pace.digested(time.monotonic() - walked)
                unkept = snapshot.facts["unkept"]
                if unkept and self._uses_incomplete:
                    self._context.beyond(announcements.CHANGED % announcements.described(unkept))
                if snapshot.facts["stays"]:
                    stays = announcements.described(snapshot.facts["stays"])
                    self._context.beyond(announcements.STAYS % stays)
                if snapshot.facts["draws"]:
                    self._context.beyond(announcements.KERNELS % ", ".join(snapshot.facts["draws"]))
                beside = not last and snapshot.size > SMALL and snapshot.size * 2 < available_memory()
                names = self._write(fit, snapshot, began, beside)
                complete = not unkept
            self._note_growth(*snapshot.largest)
            if history is None and not last:
                self._write_fingerprint(fit, names)
        except Exception as error:
            self.complain(error, fit.store)
        self._farewell.saving = False
        self._pace.saved(began, time.monotonic())
        return complete

    def _write(self, fit: Fit, snapshot: FitSnapshot, began: float, beside: bool) -> list[str]:
        """Write a snapshot, `beside` the training or at once (raises OSError); return a list that gets its name."""
        store, held = fit.store, time.monotonic() - began
        names: list[str] = []
        broken = self._context.losses.broken

        def write() -> None:
            snapshot.facts["finite"] = not broken and snapshot.is_finite()
            names.append(store.write(snapshot.facts, snapshot.blobs, snapshot.between_epochs))
            if snapshot.facts["unkept"] and not self._uses_incomplete:
                self._report.lacks(announcements.described(snapshot.facts["unkept"]), store.folder)
            else:
                self._report.saved(began)
            self._context.saved()

        def write_beside() -> None:
            cpu = time.thread_time()
            try:
                write()
            except Exception as error:
                self.complain(error, store)
            self._pace.wrote(held + time.thread_time() - cpu, time.monotonic())
            self._writing = False

        if beside:
            self._writing = True
            self._writer.add(write_beside)
        else:
            write()
        return names

    def _note_growth(self, name: str, size: int) -> None:
        """Report the largest object of the script that changes, each time that it has grown."""
        if size >= GROWN * self._reported:
            self._reported = size
            self._context.note("grows", announcements.GROWS % (name, size >> 20), object=name, bytes=size)

    def settle(self, seconds: float) -> None:
        """Wait until what is being written is there, for at most `seconds`."""
        self._writer.finish(seconds)

    def _write_fingerprint(self, fit: Fit, names: list[str]) -> None:
        place, store = fit.place(), fit.store

        def look(batches: list[Any]) -> None:
            found = tensors.fingerprint_of_first(batches)
            fit.seen(place, found)
            self._writer.add(lambda: note(found))

        def note(found: str) -> None:
            with suppress(OSError):  # a full disk, or a newer generation has replaced it
                if names:
                    store.annotate(names[0], {place: found})

        self._lookahead.arrange(fit.model, look)

    def complain(self, error: Exception, store: CheckpointStore) -> None:
        """Report that the checkpoints of a fit cannot be made, once for each kind of error."""
        if self._report.failed(error, store.folder) and not isinstance(error, OSError):
            self._context.surprise("saving a checkpoint", error)


_CGROUP = "/sys/fs/cgroup"


def available_memory() -> int:
    """Return the bytes that this process can still allocate; 0 if that is not known."""
    if sys.platform == "darwin":
        return _of_macos()
    found = [bytes_ for bytes_ in (_of_linux(), _of_cgroup()) if bytes_ is not None]
    return min(found, default=0)


def _of_linux() -> int | None:
    try:
        with open("/proc/meminfo", "rb") as file:
            line = next((line for line in file if line.startswith(b"MemAvailable:")), b"")
        return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None


def _of_cgroup() -> int | None:
    """Return the free bytes below the limit of the control group, version 2; None if there is no limit."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            place = file.read().strip().rpartition("::")[2]
        with open(_CGROUP + place.rstrip("/") + "/memory.max", encoding="ascii") as file:
            most = int(file.read())
        with open(_CGROUP + place.rstrip("/") + "/memory.current", encoding="ascii") as file:
            return max(0, most - int(file.read()))
    except (OSError, ValueError):
        return None


def _of_macos() -> int:
    """Return the free percentage of the kernel (kern.memorystatus_level) of the whole memory (hw.memsize).

    Source: xnu, bsd/kern/kern_memorystatus.c: `memory_pressure` prints this level as the free percentage.
    """
    import ctypes

    library = ctypes.CDLL(None)
    level, size = ctypes.c_uint32(0), ctypes.c_uint64(0)
    for name, value in ((b"kern.memorystatus_level", level), (b"hw.memsize", size)):
        length = ctypes.c_size_t(ctypes.sizeof(value))
        if library.sysctlbyname(name, ctypes.byref(value), ctypes.byref(length), None, 0):
            return 0
    return int(size.value * level.value / 100)


AT_EXIT = 10.0  # s that the interpreter's end waits for what is being written
LOOK = 0.005  # s between two checks in `finish`


class Writer:
    """Use from one thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: deque[Callable[[], Any]] = deque()
        self._wake = allocate_lock()
        self._wake.acquire()
        self._running = False
        self._process = os.getpid()
        self._undone = 0

    @property
    def busy(self) -> bool:
        """Whether there are unfinished jobs."""
        return self._undone > 0 and self._process == os.getpid()

    def add(self, job: Callable[[], Any]) -> None:
        """Add a job."""
        if self._process != os.getpid():
            return
        if not self._running:
            self._running = True
            atexit.register(self.finish, AT_EXIT)
            native_threads.start(self._run)
        self._undone += 1
        self._jobs.append(job)
        if self._wake.locked():
            self._wake.release()

    def finish(self, seconds: float) -> bool:
        """Wait until all jobs are done, for at most `seconds`; return whether they are."""
        until = monotonic() + seconds
        while self.busy and monotonic() < until:
            sleep(LOOK)
        return not self.busy

    def _run(self) -> None:
        self._context.mail.own_thread()
        while True:
            self._wake.acquire()
            while self._jobs:
                try:
                    self._jobs.popleft()()
                except Exception as error:
                    self._context.surprise("writing a checkpoint", error)
                self._undone -= 1

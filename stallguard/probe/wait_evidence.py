"""What the training's thread waits for, as its innermost Python frame shows it.

macOS shows no wait sites of threads, and Linux only those of system calls: both a lock and a queue are a futex there.
The frames show more: twice a second the sender's thread looks at the innermost frame of each Python thread.  If the
training's thread stands at the same instruction of the same call twice in a row, and nothing progressed between, the
record gets three numbers: what kind of wait that is (wire.WAITS), since when, and how many other Python threads could
end it.  While batches follow one another these numbers are constant, so a healthy run's records do not change.

The kind follows from the function, if it is one of Python's library with a known meaning; its local variable says
whether there is a timeout.  The local variables of any other function are never read: in Python 3.9 to 3.12 that would
keep a script's tensors alive.  In other code the instruction shows the name of what it calls.  `dis` decodes it, if
the script or its library has imported that (TensorFlow, torch and JAX do).  A call, or a test of truth, that needs a
value of a device is "device", in the library's code too.  What is not recognised is "call", if the
thread stays at one instruction of code that is not the library's, and "place", if it stays in the same few lines: a
loop that never ends.  A loop that is always found at the same call, since only that releases the interpreter's lock,
shows that it goes on (main_thread.py).  In a training of several processes a call of the library can wait for another:
it is "io".

A thread in a lock without a timeout cannot act by itself, every other thread can.  Exceptions are threads that sleep
with a timeout at the same place in nearly all samples of a healthy training, because they do not feed it.  There is no
such exception in a training that is often found waiting for a lock itself: there a thread that sleeps can be the one
that feeds it.  Such a habit shows after eight seconds.  A thread that draws a progress bar is known by its function
from the start (`displays` in libraries.py): a training has it from its first step.  It draws up to ten times a second
(rich): that a look finds it drawing says nothing, unless the look before did too.  A call that is not recognised, or
that is the training library's, can end in either way, so the number of wakers is not known (-1) unless another thread
certainly is one.

Native threads that run no Python code are not seen.  core/detection/activity.py says what that means.

This runs in the sender's thread: it must not import anything, and must not keep a frame.
"""

from __future__ import annotations

import os
import sys

from . import libraries, main_thread, patches, wire
from .native_threads import service_idents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Optional

    from .beats import Beats

    Place = tuple[int, ...]

NONE, LOCK, TIMED, SLEEP, IO, LIBRARY, PLACE, CALL, DEVICE = range(len(wire.WAITS))
# How a function's wait is found if it is not always the same: by its timeout, or by the call of the instruction.
_BY_TIMEOUT, _BY_CALL, _BY_CALL_OF_LIBRARY, _PROBE = range(100, 104)

# Functions of Python's library in which a thread stands while it waits for another: (file, function).  Lib/ of CPython
# 3.9 to 3.14.  Event, Barrier, Semaphore, queue.Queue and Future wait in Condition.wait; `_worker` in SimpleQueue.get.
_FUNCTIONS = {
    ("threading.py", "wait"): _BY_TIMEOUT,
    ("threading.py", "join"): _BY_TIMEOUT,  # 3.13: the handle's own join
    ("threading.py", "_wait_for_tstate_lock"): _BY_TIMEOUT,  # 3.9 to 3.12: -1 is no timeout
    ("threading.py", "__enter__"): LOCK,
    ("threading.py", "_acquire_restore"): LOCK,
    ("threading.py", "_shutdown"): LOCK,
    ("concurrent/futures/thread.py", "_worker"): LOCK,
    ("<frozen importlib._bootstrap>", "acquire"): LOCK,  # two threads that import each other's module
}
_TIMEOUT = "timeout"  # the variable's name in all functions above
# Files of Python's library in which a thread stands while something outside of this process can wake it: another
# process, a socket, a pipe.  A semaphore of multiprocessing can be released by another process.
_OUTSIDE = ("selectors.py", "socket.py", "ssl.py", "subprocess.py", "multiprocessing/")
# Names of functions in C, called by any other code.  Not `get`: it is SimpleQueue's, and a GPU array's that waits for
# its device (cupy).  Not `join` and `wait`: libraries name waits for other hosts so.
_CALLS = dict.fromkeys((
    "accept connect flock fsync getaddrinfo input lockf poll read read1 readinto readline readlines recv recv_bytes"
    " recv_into recvfrom recvmsg select send sendall sendfile sigwait system wait3 wait4 waitid waitpid write"
).split(), IO)  # fmt: skip
_CALLS["sleep"] = SLEEP
_ENTERS = frozenset(("BEFORE_WITH", "SETUP_WITH"))  # `with lock`: to 3.13, and to 3.10
# Built-in functions that need a number: no other argument than an array of a device lets them wait.
_NUMBERS = frozenset(("bool", "complex", "float", "int", "isfinite", "isnan"))
# Instructions that ask whether a value is true, 3.11 on: before, a busy loop can be found at any of them.  Not jumps
# back: that is where each busy loop is found.
_TRUTH = (
    ("TO_BOOL", "UNARY_NOT", "POP_JUMP_IF_", "POP_JUMP_FORWARD_IF_", "JUMP_IF_") if sys.version_info >= (3, 11) else ()
)

LATER = 1_000  # ns after progress that a wait begins at the earliest: seconds as a float show that for three years
KNOWN = 512  # functions, and calls, that are kept
LONGEST = 20_000  # bytes of a function's code; decoding 1,000 bytes takes about 0.3 ms, once
FEW = 16  # healthy samples below which no habit is known
MANY = 256  # above which the counts are halved, so that old samples weigh less
HABIT = 0.95  # share of the healthy samples in which a thread sleeps at the same place
FED = 0.02  # share in which the training's thread waits for a lock, from which another thread feeds it
FEW_LINES = 2  # of a loop that waits: where it goes back, and one function that it calls
SETTLED = 2_000_000_000  # ns in so few lines after which they are a place
DEPTH = 3  # frames that make a place: Condition.wait, Event.wait, and their caller
_BACK = 40  # instructions before a call among which its function is searched


class Habit:
    """How often a thread was found asleep at its usual place."""

    __slots__ = ("here", "place", "seen")

    def __init__(self) -> None:
        self.place: Place = ()
        self.seen = self.here = 0

    def add(self, place: Place) -> None:
        """Count a healthy sample; `place` is empty if the thread did not sleep."""
        self.seen += 1
        if place and place == self.place:
            self.here += 1
        elif place and 2 * self.here < self.seen:
            self.place, self.here = place, 1
        if self.seen > MANY:
            self.seen //= 2
            self.here //= 2

    def holds(self, place: Place) -> bool:
        """Return whether the thread nearly always sleeps at `place`."""
        return self.seen >= FEW and place == self.place and self.here >= HABIT * self.seen


class WaitEvidence:
    """Stores in the record of `beats` what the training's thread waits for."""

    def __init__(self, beats: Beats) -> None:
        self._beats = beats
        self._mark: tuple[int, ...] = ()
        self._here: Place = ()
        self._since = 0
        self._stored = False
        self._lines: set[tuple[int, int]] = set()  # where the thread was found since `_place_since`
        self._place_since = 0
        self._functions: dict[int, tuple[CodeType, int]] = {}  # by id(); a hash of a code object reads all of it
        self._calls: dict[tuple[int, int], tuple[CodeType, int]] = {}
        self._places: dict[int, Place] = {}  # where each thread stood at the last look
        self._habits: dict[int, Habit] = {}
        self.displays: dict[int, int] = {}  # threads that only show progress: number for Python -> for the system
        self._asleep: list[int] = []  # those that slept at the last look
        self._main = main_thread.Progress()
        self._waits = self._samples = 0  # healthy samples of the training's thread: in a lock, and all
        here = self.look.__code__.co_filename
        self._own = os.path.dirname(here) + os.sep
        self._standard = os.path.dirname(os.__file__) + os.sep

    def look(self, frames: dict[int, FrameType], now: int) -> None:
        """Look at the innermost frame of each thread.  `now`: CLOCK_MONOTONIC ns."""
        beats = self._beats
        mark = (beats._changes, beats._beats, beats.ended, beats.began)
        moved, self._mark = mark != self._mark, mark
        # What stands still does so since after all progress that is in the mark: a wait that is no later than the last
        # progress says nothing (core/detection/detector.py).  This turn began before the newest of it.
        beats.date_progress(now)
        now = max(now, LATER + max(beats._last, beats.ended, beats.began, beats.slots[_PROGRESS_NS]))
        thread = beats._thread
        frame = patches.behind_wrappers(frames.get(thread))
        # The address of a frame is mostly another one in the next call of the same function.
        here = (thread, id(frame), id(frame.f_code), frame.f_lasti) if frame is not None else ()
        stays = bool(here) and not moved and here == self._here
        wakers = self._look_at_others(frames, thread, moved)
        if not stays:
            self._here, self._since = here, now
        if moved and frame is not None:
            self._samples += 1
            self._waits += self.kind(frame, decode=False) == LOCK
            if self._samples > MANY:
                self._samples //= 2
                self._waits //= 2
        kind, since = NONE, self._since
        if frame is not None and stays:
            kind = self.kind(frame)
        if frame is None or moved or kind != NONE:
            self._lines.clear()
        elif self._stays_in_place(frame, now):
            kind, since = (CALL if stays and self._since <= self._place_since else PLACE), self._place_since
        if kind in (LIBRARY, DEVICE):
            if self._main.has_run(thread):  # it comes to this instruction again and again
                since = self._since = now
            if libraries.have_peers():
                kind = IO
        if stays or kind != NONE:
            # A save of ours is no wait of the script.
            self._store(NONE if kind == _PROBE else kind, since, wakers)
            self._stored = True
        elif self._stored:
            self._store(NONE, 0, -1)
            self._stored = False

    def _stays_in_place(self, frame: FrameType, now: int) -> bool:
        """Return whether the thread has been in the same few lines, not of the library, for a while."""
        code = frame.f_code
        line = (id(code), frame.f_lineno or 0)
        if self.kind(frame, decode=False) != NONE:
            self._lines.clear()  # in the library, or in a wait of a known kind
            return False
        if line not in self._lines:
            if not self._lines or len(self._lines) >= FEW_LINES:
                self._lines.clear()
                self._place_since = now
            self._lines.add(line)
        return now - self._place_since >= SETTLED

    def _store(self, kind: int, since: int, wakers: int) -> None:
        slots = self._beats.slots
        slots[_WAIT], slots[_WAIT_NS], slots[_WAKERS] = kind, since, wakers

    def _look_at_others(self, frames: dict[int, FrameType], training: int, moved: bool) -> int:
        """Return how many other threads can end a wait, -1 if that is not known; learn their habits if `moved`."""
        service = service_idents()
        fed = self._samples >= FEW and self._waits > FED * self._samples
        before, self._places = self._places, {}
        certain = unknown = 0
        asleep: list[int] = []  # displays
        for thread, innermost in frames.items():
            frame = patches.behind_wrappers(innermost)
            if thread == training or thread in service or frame is None:
                continue
            at = (id(frame), id(frame.f_code), frame.f_lasti)
            self._places[thread] = at
            shows = is_display(frame)
            kind = self.kind(frame, decode=shows or (not moved and before.get(thread) == at))
            if kind == _PROBE:
                continue
            if shows and kind in (TIMED, SLEEP):
                asleep.append(thread)
                continue
            if thread in self._asleep:  # a display that is awake for a moment; at the next look it sleeps, or stays
                continue
            place = _place(frame) if kind in (TIMED, SLEEP) else ()
            habit = self._habits.get(thread)
            if moved:
                if habit is None:
                    habit = self._habits[thread] = Habit()
                habit.add(place)
            elif kind in (NONE, LIBRARY, DEVICE):
                # One that stays elsewhere can draw with the lock that is waited for, and no census counts it.
                stays = thread in self.displays and before.get(thread) == at
                certain, unknown = certain + stays, unknown + (not stays)
            elif kind != LOCK and (fed or not place or habit is None or not habit.holds(place)):
                certain += 1
        self._asleep = asleep
        if asleep or self.displays:
            self._note_displays(asleep)
        if len(self._habits) > 2 * len(frames):
            self._habits = {thread: habit for thread, habit in self._habits.items() if thread in frames}
        return certain or (-1 if unknown else 0)

    def _note_displays(self, asleep: list[int]) -> None:
        """Note which threads are displays: those found now, and those found before that live."""
        threading = sys.modules.get("threading")
        living = {one.ident: one.native_id for one in list(threading._active.values())} if threading else {}
        self.displays = {
            thread: number for thread, number in living.items()
            if number and (thread in asleep or self.displays.get(thread) == number)
        }  # fmt: skip

    def kind(self, frame: FrameType, decode: bool = True) -> int:
        """Return the kind of wait in which a frame stands; `decode`: also if its instruction must be decoded first."""
        code = frame.f_code
        known = self._functions.get(id(code))
        if known is None or known[0] is not code:
            if len(self._functions) >= KNOWN:
                self._functions.clear()
            known = self._functions[id(code)] = (code, self._how(code))
        how = known[1]
        if how < _BY_TIMEOUT or how == _PROBE:
            return how
        if how == _BY_TIMEOUT:
            timeout = frame.f_locals.get(_TIMEOUT)
            return LOCK if timeout is None or timeout < 0 else TIMED
        key = (id(code), frame.f_lasti)
        call = self._calls.get(key)
        if call is None or call[0] is not code:
            if not decode:
                return NONE if how == _BY_CALL else LIBRARY
            if len(self._calls) >= KNOWN:
                self._calls.clear()
            kind = kind_of_call(code, frame.f_lasti)
            if how == _BY_CALL_OF_LIBRARY and kind not in (LOCK, TIMED, SLEEP, DEVICE):
                kind = LIBRARY
            call = self._calls[key] = (code, kind)
        return call[1]

    def _how(self, code: CodeType) -> int:
        """Return the kind of wait of a function, or how to find it."""
        path = code.co_filename
        if path.startswith(self._own):
            return _PROBE
        inside = path.removeprefix(self._standard)
        if inside != path or path.startswith("<frozen"):
            found = _FUNCTIONS.get((inside, code.co_name))
            if found is not None:
                return found
            if inside.startswith(_OUTSIDE):
                return IO
        for library in [one for one in libraries.known if one.trains]:
            for name in (*library.packages, *library.companions):
                # From the dictionary: an attribute of the module itself can start one of TensorFlow's lazy imports.
                known = vars(sys.modules[name]) if name in sys.modules else {}
                file = known.get("__file__")
                # A package of several distributions, as MLX's, has no file.
                folders = [os.path.dirname(file)] if isinstance(file, str) else list(known.get("__path__", ()))
                if path.startswith(tuple(os.path.join(one, "") for one in folders)):
                    own = name in library.packages and code.co_name in library.array_waits
                    return DEVICE if own else _BY_CALL_OF_LIBRARY
        return _BY_CALL


def is_display(innermost: FrameType) -> bool:
    """Return whether the thread of this frame only shows progress, and is in its own function or waits in `threading`.

    What it draws can be the script's code, which sleeps with the display's lock.
    """
    outer: Optional[FrameType] = innermost
    while outer is not None and outer.f_globals.get("__name__") == "threading":
        outer = outer.f_back
    place = ("", "") if outer is None else (outer.f_globals.get("__name__"), outer.f_code.co_name)
    return any(place in library.displays for library in libraries.known)


_WAIT, _WAIT_NS, _WAKERS = wire.SLOT["wait"], wire.SLOT["wait_ns"], wire.SLOT["wakers"]
_PROGRESS_NS = wire.SLOT["progress_ns"]


def _place(frame: FrameType) -> Place:
    """Return where a thread sleeps: its innermost calls."""
    place: list[int] = []
    outer: Optional[FrameType] = frame
    while outer is not None and len(place) < 2 * DEPTH:
        place += (id(outer.f_code), outer.f_lasti)
        outer = outer.f_back
    return tuple(place)


def kind_of_call(code: CodeType, offset: int) -> int:
    """Return the kind of wait of the C function that the instruction at `offset` calls; NONE if it is not known."""
    dis = sys.modules.get("dis")
    decode = getattr(dis, "get_instructions", None)
    if decode is None or len(code.co_code) > LONGEST:
        return NONE
    try:
        before: list[Any] = []
        # In a call of a Python function the offset is that of the call or of its last cache entry (3.11, 3.12).
        for instruction in decode(code):
            if instruction.offset > offset:
                break
            before.append(instruction)
        if before:
            return _kind_of(before.pop(), before[-_BACK:], dis)
    except Exception:
        return NONE  # a version of Python whose instructions are others
    return NONE


def _kind_of(instruction: Any, before: list[Any], dis: Any) -> int:
    """Return the kind of wait of one instruction, whose predecessors are `before`."""
    if instruction.opname in _ENTERS:
        return LOCK
    waits = {name for library in libraries.known for name in library.array_waits}
    tests = instruction.opname.startswith(_TRUTH) or instruction.argrepr.startswith("bool(")  # a comparison of 3.13
    if waits and tests:
        return DEVICE
    name, arguments = _called(instruction, before, dis)
    if name == "__enter__":  # 3.14: `with` is a call
        return LOCK
    if name == "acquire":
        return TIMED if arguments else LOCK
    if name in waits or (waits and name in _NUMBERS):
        return DEVICE
    return _CALLS.get(name, NONE)


def _called(call: Any, before: list[Any], dis: Any) -> tuple[str, int]:
    """Return the name of what an instruction calls, and the number of its arguments; ("", 0) if it is not found.

    Going back from the call, the stack falls below the arguments where the first of them was loaded; the instruction
    before that loaded the function.
    """
    if not call.opname.startswith(("CALL", "PRECALL")) or call.opname == "CALL_FUNCTION_EX":
        return "", 0
    arguments = call.arg or 0
    # Names of keyword arguments are a tuple on the stack as well.
    left = arguments + (call.opname in ("CALL_FUNCTION_KW", "CALL_KW"))
    if before and before[-1].opname == "PRECALL":  # 3.11: the first half of the call
        before.pop()
    for instruction in reversed(before):
        name = instruction.opname
        if name in ("CACHE", "KW_NAMES", "EXTENDED_ARG", "NOP") or (name == "PUSH_NULL" and left <= 0):
            continue
        if name == "LOAD_SPECIAL":
            return "__enter__", 0
        if left <= 0:
            return (str(instruction.argval), arguments) if name.startswith("LOAD_") else ("", 0)
        if "JUMP" in name or instruction.is_jump_target:
            return "", 0  # an argument with a condition
        left -= dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
    return "", 0

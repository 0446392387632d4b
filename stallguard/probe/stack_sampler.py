"""Samples the Python stacks of the training thread and of the threads that feed it, twice a second.

The supervisor makes of them where the time goes: by phase, by line of the script, and as a flame graph.  The sender's
thread takes the samples, so the training thread runs no code for it; it waits at most for the interpreter's lock, which
a sample holds for some 50 microseconds.

A sample counts for the time since the one before it.  Its moment is chosen before, at random around PERIOD after the
last one, and the thread sleeps until then: what runs at that moment is what counts.  The thread goes on only when it
has the interpreter's lock, so it goes on where the running thread releases it.  Ticks that are counted from there run
in step with the training: with ticks of 50 ms and batches of 27 ms (20 ms of Python, 7 ms of the framework), 10 to 40
% of the samples were in the Python code instead of 70 %.

Native code that keeps the lock delays the sample until it returns, and its line is still the innermost one then.
Python code keeps the lock for the switch interval (5 ms) and is found if it runs for longer.  If it runs for less at a
time, each sample would fall on the native call that follows it.  So the switch interval is shortened for the time
between the tick before a sample and the sample: 25 ms on average, twice a second.  Two busy threads of Python are not
measurably slower with it (0 to 3 % beside 4 % of noise).

The time since the last progress is kept apart until progress comes, because a stall is not slowness: as "no progress"
if that is long ago, or the supervisor judged it a stall.  Then it goes to the stacks' own phases, unless it was judged.

The table has a fixed size: when it is full, the stacks with the least time are merged into one entry for each role and
phase.  Times are absolute, so a reader that misses a state of the table loses nothing.

Nothing here imports, prints or blocks; what it raises ends the sampling alone (`Sender`).
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from time import thread_time

from . import libraries, native_threads, outbox, wire
from .outbox import encode
from .patches import SKIPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Optional

    from .beats import Beats
    from .wait_evidence import WaitEvidence

    Line = tuple[str, int, str]  # file, line, function
    Stack = tuple[str, str, tuple[Line, ...]]  # role, phase, lines from the outermost to the innermost

PERIOD = 500_000_000  # ns between two samples, on average
SWITCH = 0.000137  # s: the interpreter's switch interval before a sample; odd, so that it is known again
SHORTEST = 0.001  # s until a sample, at least
MICROSECOND = 0.000001  # s: the interval is kept in whole ones
WRITTEN = 5_000_000_000  # ns between two writes of the table
SHARE = 1000  # each pause is at least this many times the processor time that was spent: 0.1 % of a core
LONGEST = 60_000_000_000  # ns that one sample counts for at most: a machine that was asleep, a stopped process
MOST = 400  # stacks in the table
KEPT = 200  # stacks that stay when it is full
FUNCTIONS = 100  # measured functions in the file
THREADS = 16  # threads a sample, beside the one that trains
DEPTH = 96  # frames a stack, from the innermost; the tracing of a function is deeper
OUTER = 32  # frames of the script's own code beyond
TRAINING, FEEDER = "training", "feeder"
BUILT_IN = "<built-in>"  # the file of a line for a function in C
WAITING = ("lock", "timed", "sleep", "io")  # kinds of wait (wire.WAITS) that such a line names
GAP = 5_000_000_000  # ns without progress from which a gap is shown as one, as in `detector.near`
_PHASE, _BEGAN, _BEATS = wire.SLOT["phase"], wire.SLOT["began_ns"], wire.SLOT["beats"]
_SAVES, _CHANGES, _SOURCE, _HAND = (
    wire.SLOT["saves"],
    wire.SLOT["changes"],
    wire.SLOT["source"],
    wire.SOURCES.index("hand"),
)
_STALLED = wire.PROFILE_STALLED // 8  # index of that number in the file
# Phases in which no progress is expected, so an open gap in them is shown with their own name.
_QUIET = ("importing", "idle", "tracing", "first run", "finishing", wire.OWN_WORK)
_HERE = os.path.dirname(__file__) + os.sep


class StackSampler:
    """The table of stacks, and when to add to it.

    `path`: of the file that shows it to the supervisor; `functions`: `Context.python_functions`, for the same file;
    `waits`: knows what a function in C waits for, which has no frame of its own.
    """

    def __init__(
        self,
        beats: Beats,
        path: str,
        functions: dict[tuple[str, str, int, str], list[int]],
        waits: Optional[WaitEvidence] = None,
    ) -> None:
        self._beats, self._path, self._functions, self._waits = beats, path, functions, waits
        self._stood: set[tuple[int, int]] = set()  # instructions of the script at which a thread was found
        self._times: dict[Stack, int] = {}  # ns
        self._gap: dict[Stack, int] = {}  # the same since the last progress
        self._gap_began = 0  # the sample before the first one of this gap
        self._gap_changes = -1  # the record's count of events in it
        # Of the measured functions: their time when this gap began, and that in stalls.
        self._measured: dict[tuple[str, str, int, str], int] = {}
        self._left_out: dict[tuple[str, str, int, str], int] = {}
        self._judged = 0  # when the supervisor judged the last stall that has ended
        self._samples = self._covered = 0
        self._last = self._due = 0
        self._write_due = 0
        self._page: Optional[memoryview] = None
        self._chance = os.getpid()
        self._usual = 0.0  # the switch interval that is to be restored; 0 if it is not shortened
        self._restored = 0.0  # the one that was restored last

    def pause(self, now: int, longest: float) -> float:
        """Return how long to sleep, s: `longest`, or until the next sample; then the switch interval is shortened.

        `now`: CLOCK_MONOTONIC ns.
        """
        left = (self._due - now) / 1e9
        if not self._due or not self._beats.claimed or left > longest:
            return longest
        usual = self._usual or sys.getswitchinterval()
        if abs(usual - SWITCH) < MICROSECOND:  # the script read it before a sample and has set it now
            usual = self._restored
        if usual > SWITCH:
            self._usual = usual
            sys.setswitchinterval(SWITCH)
        return max(left, SHORTEST)

    def turn(self, now: int) -> None:
        """Take a sample and write the table if that is due at `now` (CLOCK_MONOTONIC ns).

        Not in the training thread, which sends urgent notes itself: it would sample itself, and wait.
        """
        self.restore()  # at once: a thread that begins to wait for the lock now gets it after the usual interval
        if now < self._due or not self._beats.claimed or get_ident() == self._beats.training_thread:
            return
        began = thread_time()
        if self._page is None:  # as the training begins: in a gap, what its file takes is no idleness of the process
            self._page = outbox.shared(self._path, wire.PROFILE_SIZE)
        self._add(native_threads.frames(), now)
        self._last = now
        if now >= self._write_due:
            self.write()
            spent = int((thread_time() - began) * 1e9)
            self._write_due = now + max(WRITTEN, SHARE * spent)
        else:
            spent = int((thread_time() - began) * 1e9)
        jitter = int((self._random() - 0.5) * PERIOD / 2)
        self._due = now + max(PERIOD + jitter, SHARE * spent)

    def _random(self) -> float:
        """Return a number from 0 to 1, by Knuth's linear congruential generator: `random` must not be imported."""
        self._chance = (self._chance * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return self._chance / 2**64

    def restore(self) -> None:
        """Restore the switch interval: for a sample, and in a process that was forked before one."""
        usual, self._usual = self._usual, 0.0
        if usual and sys.getswitchinterval() <= SWITCH:  # else the script has set its own meanwhile
            # It is kept in whole microseconds, cut off: without the half a script's own one would shrink each time.
            sys.setswitchinterval(usual + 5e-7)
            self._restored = usual

    def _add(self, frames: dict[int, FrameType], now: int) -> None:
        """Add the time since the last sample to the stack of each thread that counts; the first only looks."""
        passed = min(now - self._last, LONGEST) if self._last else 0
        trains, me = self._beats.training_thread, get_ident()
        training = frames.pop(trains, None)
        stack = self._stack(training)  # first: it can have begun to wait for the lock, and goes on after SWITCH
        self._beats.publish()  # the phase and the count of events of this moment
        slots = self._beats.slots
        phase = wire.OWN_WORK if self._beats.own_work else wire.PHASES[slots[_PHASE]]
        if slots[_CHANGES] != self._gap_changes:
            self._close_gap()
            self._gap_changes, self._gap_began = slots[_CHANGES], self._last or now
            self._measured = {key: time for key, (_, time) in list(self._functions.items())}
        if not passed:
            return
        self._samples += 1
        self._covered += passed
        found = [(TRAINING, phase, stack[0])] if training else []
        for thread, frame in frames.items():
            if len(found) > THREADS:
                break
            lines, own = self._stack(frame) if thread != me else ((), False)
            if own:  # else an idle thread of a pool, a progress bar's monitor, a thread of the probe
                found.append((FEEDER, phase, lines))
        for key in found:
            self._gap[key] = self._gap.get(key, 0) + passed
        if len(self._gap) > MOST:
            self._gap = _merged(self._gap, KEPT)

    def _close_gap(self) -> None:
        """Add the time of the gap that has ended: to the phases of its stacks, or as a stall if it was judged one."""
        stalled = self._is_judged()
        self._judged = 0 if self._page is None else self._page[_STALLED]  # it is about one gap
        for (role, phase, lines), passed in self._gap.items():
            key = (role, wire.NO_PROGRESS if stalled else phase, lines)
            self._times[key] = self._times.get(key, 0) + passed
        self._gap = {}
        for function, (_, time) in list(self._functions.items()) if stalled else ():
            before = self._left_out.get(function, 0) - self._measured.get(function, 0)
            self._left_out[function] = before + time
        if len(self._times) > MOST:
            self._times = _merged(self._times, KEPT)

    def _is_judged(self) -> bool:
        """Return whether the supervisor judged the gap that is open a stall."""
        judged = 0 if self._page is None else self._page[_STALLED]
        return judged > self._judged and judged >= self._gap_began

    def _table(self) -> dict[Stack, int]:
        """Return the time of each stack, with that of the open gap."""
        times, long, stalled = dict(self._times), self._last - self._gap_began >= GAP, self._is_judged()
        quiet = _QUIET[2:] if self._beats.slots[_SOURCE] == _HAND else _QUIET  # that loop has no phases
        for (role, phase, lines), passed in self._gap.items():
            key = (role, wire.NO_PROGRESS if stalled or (long and phase not in quiet) else phase, lines)
            times[key] = times.get(key, 0) + passed
        return times

    def _stack(self, frame: Optional[FrameType]) -> tuple[tuple[Line, ...], bool]:
        """Return the lines of a stack, with the wait in which it ends, and whether one is of the script's own code."""
        if frame is None:
            return (), False
        lines, own = _lines(frame)
        return lines + self._waits_in(frame), own

    def _waits_in(self, frame: FrameType) -> tuple[Line, ...]:
        """Return a line for the function in C in which the script's own line waits; nothing if that is not known.

        To find it, the instruction must be decoded: only one at which a thread was found before.
        """
        code = frame.f_code
        if self._waits is None or libraries.is_librarys(code.co_filename):
            return ()
        at = (id(code), frame.f_lasti)
        known = at in self._stood
        if len(self._stood) > MOST:
            self._stood.clear()
        self._stood.add(at)
        kind = wire.WAITS[self._waits.kind(frame, decode=known)]
        return ((BUILT_IN, 0, kind),) if kind in WAITING else ()

    def finish(self) -> None:
        """Write the table a last time: the program ends.  Raises nothing."""
        try:
            self.write()
        except Exception:
            self._times = self._gap = {}

    def write(self) -> None:
        """Write the table into the file, if there is anything in it."""
        times = self._table()
        if not times:
            return
        if self._page is None:
            self._page = outbox.shared(self._path, wire.PROFILE_SIZE)
        kept, text = len(times), self._text(times)
        while len(text) > wire.PROFILE_STALLED - wire.PROFILE_HEAD:
            kept //= 2
            self._times, self._gap = _merged(self._times, kept), _merged(self._gap, kept)
            times = self._table()
            text = self._text(times)
        numbers, whole = self._page, self._page.cast("B")
        numbers[0] += 1
        whole[wire.PROFILE_HEAD : wire.PROFILE_HEAD + len(text)] = text
        numbers[1] = len(text)
        numbers[0] += 1

    def _text(self, times: dict[Stack, int]) -> bytes:
        """Return the table as JSON: each line of code once, and stacks of their numbers."""
        lines: dict[Line, int] = {}
        stacks = [
            [role, phase, [lines.setdefault(line, len(lines)) for line in stack], passed // 1_000_000]
            for (role, phase, stack), passed in times.items()
        ]
        functions = [
            [*key, calls, (passed - self._left_out.get(key, 0)) // 1_000_000]
            for key, (calls, passed) in list(self._functions.items())[:FUNCTIONS]
        ]
        whole: dict[str, Any] = {
            "began": self._beats.slots[_BEGAN],
            "beats": self._beats.slots[_BEATS],
            "saves": self._beats.slots[_SAVES] - self._beats.own_saves,
            "samples": self._samples,
            "milliseconds": self._covered // 1_000_000,
            "lines": list(lines),
            "stacks": stacks,
            "functions": functions,
        }
        return encode(whole).encode()


def _merged(times: dict[Stack, int], kept: int) -> dict[Stack, int]:
    """Return a table with the `kept` stacks of the most time; all others are one entry for each role and phase."""
    ranked = sorted(times.items(), key=lambda item: item[1], reverse=True)
    merged = dict(ranked[:kept])
    for (role, phase, _), passed in ranked[kept:]:
        rest = (role, phase, ())
        merged[rest] = merged.get(rest, 0) + passed
    return merged


def _lines(frame: Optional[FrameType]) -> tuple[tuple[Line, ...], bool]:
    """Return the lines of a stack, the outermost first, and whether one of them is of the script's own code."""
    found: list[Line] = []
    own = False
    while frame is not None and len(found) < DEPTH + OUTER:
        code, line = frame.f_code, frame.f_lineno
        file = code.co_filename
        if not (file.startswith(_HERE) or file.endswith(SKIPPED)):
            scripts = (len(found) >= DEPTH or not own) and not libraries.is_librarys(file)
            own = own or scripts
            if scripts or len(found) < DEPTH:
                found.append((file, line or 0, code.co_name))
        frame = frame.f_back
    found.reverse()
    return tuple(found), own

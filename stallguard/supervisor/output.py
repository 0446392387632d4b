"""The script's output: carried to the user's descriptors, unchanged and at once, kept in output.log, and searched.

One line (terminal_lines.TerminalLine) and one thread for each of standard output and error, for the whole run: attempts
come and go, the lines stay.  Writing to the user can block without limit; then only the child blocks, as it
would without us.  When the user's end is closed (`| head`) the child's breaks.  If we are killed, another process
carries the rest (standby.py).  This module must not change a byte, and never sets O_NONBLOCK on a descriptor of the
user's.

`Matching` has a matcher search the output for what it means, from the first byte on.  The matcher is loaded after the
child was started; what came before waits.  A script that prints faster than its output can be searched is read in
samples: what was skipped is counted and said.  The search must not hold up the output.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from stallguard.core.events import Event, ProbeNote
from stallguard.supervisor.output_log import OutputLog
from stallguard.supervisor.standby import Standby
from stallguard.supervisor.terminal_lines import Streams, TerminalLine, copy_settings, open_line, resize
from stallguard.worker import Worker

if TYPE_CHECKING:
    from stallguard.sensors.log_matcher import Matcher

CHUNK = 1 << 16  # bytes; one that is read fits the processor's cache until it is written twice
LAST = 1 << 20  # bytes read after the child's end: the most that a pipe holds, so all more is an orphan's
LAST_PAUSE = 0.05  # seconds of silence after which nothing more can come from a child that has ended
HUNG_UP = (errno.EIO, errno.ENXIO, errno.EBADF)  # how a terminal says that it is gone
TAP_CHUNKS = 64  # chunks that wait for the tap; if more come, it is not shown the oldest
TAP_REST = 19.0  # seconds of rest for each second of processor time that the tap used
TAP_PATIENCE = 0.5  # seconds for the tap to read what still waits at the end

Keep = Callable[[bytes], None]
Tap = Callable[[bytes, int], None]  # a chunk, and how many bytes before it are not shown

FIRST = 1 << 20  # bytes that may wait for the matcher; what exceeds them is not read
MB = 1e6
LOADING = 5.0  # seconds that the end of an attempt waits for the matcher to be there


class Waiter:
    """Waits until one of our descriptors is readable, or the user's end is gone."""

    def __init__(self, readable: Sequence[int], target: int) -> None:
        """Watch `readable` for data, and whether the reader of `target` has closed it."""
        self._readable, self._target = list(readable), target
        if sys.platform != "darwin":
            self._poll = select.poll()
            for descriptor in self._readable:
                self._poll.register(descriptor, select.POLLIN)
            self._poll.register(target, 0)  # hang-up and error are reported unasked

    if sys.platform == "darwin":

        def wait(self, seconds: float | None) -> tuple[set[int], bool]:
            """Return what is readable, and whether the user's end is gone.

            poll(2) of macOS knows no terminals, and select(2) no reader's end: there the next write fails.
            """
            return set(select.select(self._readable, [], [], seconds)[0]), False

    else:

        def wait(self, seconds: float | None) -> tuple[set[int], bool]:
            """Return what is readable, and whether the user's end is gone."""
            ready = {number for number, _ in self._poll.poll(None if seconds is None else seconds * 1000)}
            return ready - {self._target}, self._target in ready


class Pump:
    """One line and the thread that carries its bytes."""

    def __init__(
        self, name: str, line: TerminalLine, target: int, keep: Keep, trouble: Callable[[str], None],
        standby: Standby,
    ) -> None:  # fmt: skip
        """Carry from `line` to `target`, and give `keep` each chunk.

        `trouble` is called once if output is lost; `standby` holds our end of the line too.
        """
        self.line, self.target, self._standby = line, target, standby
        self.blocked_since: float | None = None  # monotonic seconds: the user's end takes nothing
        self.last = b"\n"  # the byte that the user saw last
        self._name, self._keep, self._trouble = name, keep, trouble
        self._is_reported = False
        self._woken, self._wake = os.pipe()
        self._settled = threading.Event()
        self._closing = False
        self._thread = Worker(self._run, f"output-{name}")
        self._thread.start()

    def settle(self, seconds: float) -> bool:
        """Wait until all that was written has been carried; False if that takes longer."""
        self._settled.clear()
        if not self._thread.is_alive():
            return True
        os.write(self._wake, b"s")
        return self._settled.wait(seconds)

    def is_full(self) -> bool:
        """Return whether what the child writes now would wait: the user's end takes nothing, and the line is full."""
        if self.blocked_since is None or self._closing:
            return False
        try:
            return not select.select([], [self.line.theirs], [], 0)[1]  # poll(2) of macOS knows no terminals
        except ValueError:  # a number beyond FD_SETSIZE
            return True

    def finish(self) -> None:
        """Carry what is there, then end.  The child must have ended.

        The last close of a terminal's slave waits and then drops what is unread (xnu, ptsclose), so that is `join`'s.
        """
        self._closing = True
        self._standby.end()  # nothing is to outlive us any more, however long the user's end takes nothing
        if not self.line.terminal:
            os.close(self.line.theirs)
        os.write(self._wake, b"f")

    def join(self, seconds: float | None) -> bool:
        """Wait for the end; False if the user's end still takes nothing."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self.line.terminal:
            os.close(self.line.theirs)
        os.close(self._wake)
        os.close(self._woken)
        return True

    def _run(self) -> None:
        waiter = Waiter([self.line.ours, self._woken], self.target)
        with contextlib.suppress(BrokenPipeError):
            while not self._closing:
                ready, gone = waiter.wait(None)
                if gone:
                    raise BrokenPipeError
                if self.line.ours not in ready:
                    os.read(self._woken, 1)
                    self._settled.set()
                elif not self._carry():
                    break
            left = LAST
            while left > 0 and self.line.ours in waiter.wait(LAST_PAUSE)[0]:
                count = self._carry()
                if not count:
                    break
                left -= count
        self._standby.end()
        os.close(self.line.ours)  # a child that still writes gets the error that it would get without us
        self._settled.set()

    def _carry(self) -> int:
        """Carry one chunk; return its size, 0 at the end."""
        try:
            data = os.read(self.line.ours, CHUNK)
        except OSError:  # EIO: how Linux says that a terminal has no other end any more
            return 0
        if data:
            try:
                self._deliver(data)
            finally:
                self._keep(data)
        return len(data)

    def _deliver(self, data: bytes) -> None:
        rest = memoryview(data)
        self.blocked_since = time.monotonic()
        try:
            while rest:
                try:
                    rest = rest[os.write(self.target, rest) :]
                except BlockingIOError:
                    # Another process that shares the user's descriptor made it non-blocking.
                    select.select([], [self.target], [])
        except BrokenPipeError:
            raise
        except OSError as error:
            if error.errno in HUNG_UP:
                raise BrokenPipeError from error
            if not self._is_reported:  # a full disk under `> file`: the training and output.log go on
                why = error.strerror
                self._trouble(f"standard {self._name} cannot be written ({why}); output is lost there")
            self._is_reported = True
        finally:
            self.blocked_since = None
        self.last = data[-1:]


class TapThread:
    """Shows chunks to a reader that may be slow, on a thread of its own; the newest that wait, and no more.

    Searching holds the interpreter's lock, which the threads that carry the output need after every system call.  So
    this thread rests in proportion to the processor time that it used: a twentieth of the time is its own at most.  Of
    a flood it shows samples, each of TAP_CHUNKS chunks without a gap.
    """

    def __init__(self, tap: Tap, trouble: Callable[[str], None]) -> None:
        """Give chunks to `tap`.  `trouble` is called once if the tap fails."""
        self._tap, self._trouble = tap, trouble
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._skipped = 0  # bytes before those that wait that are not shown
        self._idle, self._closing = True, False
        self._hurried = threading.Event()
        self._thread = Worker(self._run, "output-tap")
        self._thread.start()

    def show(self, data: bytes) -> None:
        """Queue a chunk; never waits for the tap."""
        with self._changed:
            self._waiting.append(data)
            self._idle = False
            if len(self._waiting) > TAP_CHUNKS:
                self._skipped += len(self._waiting.popleft())
            self._changed.notify_all()

    def settle(self, seconds: float) -> bool:
        """Give the tap what waits without a rest; False if that takes longer, or the tap failed."""
        self._hurried.set()
        with self._changed:
            done = self._changed.wait_for(lambda: self._idle or not self._thread.is_alive(), seconds)
        self._hurried.clear()
        return done and self._idle

    def close(self) -> None:
        """Give the tap what waits, for a moment, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._hurried.set()
        self._thread.join(TAP_PATIENCE)

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._idle = not self._waiting
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._waiting or self._closing)
                    skipped, chunks = self._skipped, self._waiting
                    self._skipped, self._waiting = 0, deque()
                if not chunks:
                    return
                for data in chunks:
                    before = time.thread_time()
                    self._tap(data, skipped)
                    skipped = 0
                    self._hurried.wait(TAP_REST * (time.thread_time() - before))
        except Exception as error:  # noqa: BLE001 - an error of the tap must not reach the output
            self._trouble(f"the output is not read for signatures any more: {type(error).__name__}: {error}")


class OutputCarrier:
    """The output of a run.  Hand `stdout` and `stderr` to each attempt's child."""

    def __init__(
        self, streams: Streams, log: OutputLog, trouble: Callable[[str], None], tap: Tap | None = None,
        targets: tuple[int, int] = (1, 2),
    ) -> None:  # fmt: skip
        """Make the lines for `streams` in front of `targets`, the user's standard output and error."""
        self._log = log
        self._tap = TapThread(tap, trouble) if tap else None
        self._trouble = trouble
        self._out = self._pump("output", streams.out, targets[0])
        self._err = self._out if streams.shared else self._pump("error", streams.err, targets[1])
        self._pumps = [pump for pump in dict.fromkeys((self._out, self._err)) if pump]

    def _pump(self, name: str, kind: str, target: int) -> Pump | None:
        if kind == "none":
            return None
        line, log = open_line(kind, target), self._log
        standby = Standby(line.ours, target, log.path, log.part_max, self._trouble)
        return Pump(name, line, target, self._keep, self._trouble, standby)

    def _keep(self, data: bytes) -> None:
        self._log.write(data)
        if self._tap:
            self._tap.show(data)

    @property
    def stdout(self) -> int | None:
        """The descriptor for the child's standard output; None: it inherits ours, which is closed."""
        return self._out.line.theirs if self._out else None

    @property
    def stderr(self) -> int | None:
        """The descriptor for the child's standard error."""
        return self._err.line.theirs if self._err else None

    def copy_settings(self) -> None:
        """Make our terminals like the user's again; before every attempt."""
        for pump in self._pumps:
            copy_settings(pump.line, pump.target)

    def resize(self) -> None:
        """Follow the size of the user's terminal; on SIGWINCH, which the child must be sent then too."""
        for pump in self._pumps:
            resize(pump.line, pump.target)

    def fresh(self) -> bool:
        """Return whether standard error stands at the beginning of a line."""
        return self._err is None or self._err.last == b"\n"

    def blocked(self, now: float) -> float:
        """Return for how many seconds the user's end has taken nothing (Ctrl-S, a pager) and the child cannot write.

        0 while there is room for more output: until then a child that stands still has another reason.
        """
        since = [pump.blocked_since for pump in self._pumps if pump.is_full()]
        return max((now - at for at in since if at is not None), default=0.0)

    def settle(self, seconds: float) -> bool:
        """Wait until all that the child wrote so far has been passed on and shown; False if that takes longer."""
        until = time.monotonic() + seconds
        settled = [pump.settle(max(until - time.monotonic(), 0.0)) for pump in self._pumps]
        if self._tap:
            settled.append(self._tap.settle(max(until - time.monotonic(), 0.0)))
        return all(settled)

    def finish(self, seconds: float | None = None) -> bool:
        """Pass the last bytes on and end; False if the user's end takes nothing for so long.

        None waits as the program itself would have waited.  Orphans that still have the line open are cut off.
        """
        for pump in self._pumps:
            pump.finish()
        done = [pump.join(seconds) for pump in self._pumps]
        if self._tap:
            self._tap.close()
        if all(done):
            self._log.close()
        return all(done)


class Matching:
    """Posts what a matcher finds.  `feed` and `finish` come from the threads of the output and of the child's end."""

    def __init__(self, post: Callable[[Event], None], now: Callable[[], float], attempt: Callable[[], int]) -> None:
        """`attempt` returns the number of the present attempt."""
        self._post, self._now, self._attempt = post, now, attempt
        self._skipped = 0  # bytes of this attempt's output that were not read
        self._matcher: Matcher | None = None
        self._early = bytearray()
        # Two threads use `_early` until the matcher is there; after that the lock is rarely contended.
        self._lock = threading.Lock()
        self._ready = threading.Event()

    def begin(self, matcher: Matcher) -> None:
        """Read with `matcher` from now on, and first what waits."""
        with self._lock:
            self._matcher = matcher
            self._post_all(matcher.feed(bytes(self._early), self._now()))
            self._early.clear()
            if self._skipped:
                matcher.skip()
        self._ready.set()

    def feed(self, data: bytes, skipped: int = 0) -> None:
        """Read what the script said.  `skipped`: bytes before `data` that were not read."""
        with self._lock:
            self._skip(skipped)
            if self._matcher is not None:
                self._post_all(self._matcher.feed(data, self._now()))
            elif len(self._early) < FIRST:
                self._early += data
            else:
                self._skip(len(data))

    def _skip(self, size: int) -> None:
        if size and not self._skipped:
            self._note("the script prints faster than its output can be searched for errors: it is searched in samples")
        self._skipped += size
        if size and self._matcher is not None:
            self._matcher.skip()

    def finish(self) -> None:
        """Read what an attempt that has ended left without a line's end, and say how much was skipped."""
        self._ready.wait(LOADING)
        with self._lock:
            if self._matcher is not None:
                self._post_all(self._matcher.finish(self._now()))
            if self._skipped:
                self._note(f"{self._skipped / MB:.1f} MB of the output came too fast to be searched for errors")
            self._skipped = 0

    def _note(self, text: str) -> None:
        now, attempt = self._now(), self._attempt()
        self._post(ProbeNote(at=now, attempt=attempt, kind="unsearched", text=text))

    def _post_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._post(event)

"""Receives the probes' records and notes, and posts to the mailbox what is new.

One thread owns the socket and the pages.  It keeps one Track a program: a run is often several processes.  It merges
records so that the core gets about one a second of each while all is well, and one at once when progress resumes after
a pause.  It reads the mapped page of a program that sends nothing, and of one that never could because the socket had
no name when it began.  It finds out when a program has ended without a last record, and reads all of them once more
after the child's end, before it posts the exit.  Must not judge anything.

A program is known by its process' number and the time at which it began: a process can replace itself (os.execv), and
then another program has the same number.  One without a probe sends nothing; only another image of the process shows
it (host: program_image), if the first image was read before the program sent a record.  Any other silent program lives.
An open descriptor of the page shows nothing: on Python 3.13 a mapping needs none, and a program can close it.

Any process of this user can write to the socket.  So the token is compared before anything is decoded, what does not
carry it is counted and dropped, and an error in one message never ends the thread.  On Linux the kernel says the user
of each sender, and what another user sends is dropped as well.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import select
import selectors
import socket
import struct
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.core.events import Event, Exited, Heartbeat, ProbeConnected, ProbeNote, ProcessLeft
from stallguard.host import system
from stallguard.probe import wire
from stallguard.storage import private
from stallguard.storage.paths import BEATS
from stallguard.supervisor import notices, signals
from stallguard.supervisor.attempt_watch import OutsideWatch, ProfileWatch, Program
from stallguard.supervisor.sockets import LOOK, Named
from stallguard.worker import Worker

RECEIVE_BUFFER = 1 << 16  # bytes; macOS' default of 4096 holds a dozen records
# Seconds for which records queue after one was received: twenty a second say no more than two or three.  Linux queues
# ten (net.unix.max_dgram_qlen), and a probe that is refused sends the same with its next record.
REST = 0.4
STICKY = ("stop",)  # commands that hold for every program of the attempt, one that begins later too
FOREIGN, UNREADABLE = "without this attempt's token", "that cannot be read"
ANOTHERS = "of another user"
ROOT = 0
NOWHERE = "?"  # the place of a process that could not determine its own


# Seconds between two merged records while beats come.  With the pause of the receiver, which comes on top, it is less
# than the second without progress from which on the detector wants closer readings (detector.wanted).
EVERY = 0.75
SOON = 0.25  # seconds, the same when the phase changed: as often as the detector wants readings in a gap
SILENT = 1.0  # seconds without progress after which the next progress is news at once
PAGE_AFTER = 2.0  # seconds without a record, which a probe sends once a second, after which the page is read
# How a program left that sent a last record, by whether an exception ended it.
HOW_LEFT = {False: "ended", True: "failed"}
VANISHED, REPLACED = "vanished", "replaced"
_CALLBACKS = wire.SOURCES.index("callbacks")
_BYE = wire.KINDS.index("bye")
_COMMAND = struct.Struct("<q")
_TIMES = ("beat", "phase", "progress", "sent", "iterations", "poll", "wait")
_COUNTS = (
    "pid beats changes fits fit_beats epoch epochs batch batches checks traces iterations saves slices skipped wakers "
    "micro total"
).split()
# The same object as the default value: msgspec omits a field only if it holds that object.
_ZERO = Heartbeat(at=0.0, attempt=0).beat_at

Record = dict[str, int]


class _Note(msgspec.Struct):
    pid: int
    kind: str
    text: str = ""
    facts: dict[str, str] = {}
    armed: bool = False
    hooks: tuple[str, ...] = ()
    versions: dict[str, str] = {}
    threads: tuple[int, ...] = ()
    beyond: tuple[str, ...] = ()
    place: str = ""
    command: str = ""


class HeartbeatListener:
    """Receives from the probes of the present attempt and posts what they say as events."""

    def __init__(
        self, directory: Path, pages: Path, post: Callable[[Event], None], now: Callable[[], float],
        observe: Callable[[Event], None] | None = None,
    ) -> None:  # fmt: skip
        """Bind the socket `directory`/beats.  `pages`: the directory of the probes' pages.

        `observe` gets the records that are merged with the next one, and so are not posted.
        """
        self.path, self._observe = directory / BEATS, observe
        self._pages, self._post, self._now = pages, post, now
        self._named = Named(self.path, socket.SOCK_DGRAM, buffer=RECEIVE_BUFFER)
        self._prepare()
        self._bound_at, self._unbound = now(), False
        self._ended, self._wake = os.pipe()
        self._thread: Worker | None = None
        self._tracks: dict[int, Track] = {}
        self._profiles, self.outside = ProfileWatch(pages, post), OutsideWatch(pages, post)
        self._reset(0, 0)

    def _prepare(self) -> None:
        self._named.socket.setblocking(False)
        with contextlib.suppress(OSError):  # the directory and the token hold without it
            system.name_senders(self._named.socket)

    def _reset(self, attempt: int, token: int) -> None:
        self._drop_all()
        self._attempt, self._token = attempt, token
        self._asked: tuple[str, ...] = ()
        self._dropped = Counter[str]()  # messages, by why
        # The newest record of each program that was received and not judged.
        self._newest: dict[int, Record] = {}
        self._exit: tuple[int | None, bool | None] | None = None
        self._crashed = ("", "")
        self._over: set[Program] = set()  # programs of this attempt that are over
        self._searched = self._now()
        self.outside.begin(attempt, self._searched)

    def follow(self, attempt: int, token: int, known: Collection[int] = ()) -> None:
        """Begin to receive for `attempt`; call before its child starts, and after the one before has ended.

        `known`: processes that an earlier stallguard knew of; their pages show how far they are.
        """
        if self._thread is not None:
            self._thread.join()
        self._reset(attempt, token)
        for pid in known:
            with contextlib.suppress(OSError):  # it left no page
                record = wire.unpack((self._pages / f"{pid}.page").read_bytes())
                if record is not None and record["token"] == token:
                    self._begin(record)
                    continue
            self._post(ProcessLeft(at=self._now(), attempt=attempt, pid=pid, how=VANISHED))
        self._thread = Worker(self._run, "beats")
        self._thread.start()

    def exited(self, code: int | None, memory_kill: bool | None, crashed: tuple[str, str] = ("", "")) -> None:
        """Note the child's end; everything that it still sent is posted before the Exited event.

        `code`: None if it is not known; `crashed`: where and what, as in Exited.
        """
        self._exit, self._crashed = (code, memory_kill), crashed
        os.write(self._wake, b"x")

    def ask(self, command: str) -> bool:
        """Pass a command (actions.Ask) to each program of the attempt; return False if none can read it."""
        if command == "stalled":  # for the samples of its stacks; no hook reads it
            return self._profiles.mark_stall(list(self._tracks), self._now())
        if command in STICKY:
            self._asked = (command,)
        asked = [track.ask(command) for track in list(self._tracks.values())]
        return any(asked)

    def close(self) -> None:
        """Stop receiving and remove the socket."""
        if self._thread is not None and self._thread.is_alive():
            self._exit = self._exit or (0, None)
            self._attempt = -1
            os.write(self._wake, b"x")
            self._thread.join(5)
        self._drop_all()
        self._named.close()
        os.close(self._ended)
        os.close(self._wake)

    def _drop_all(self) -> None:
        for track in self._tracks.values():
            track.close()
        self._tracks = {}

    def _run(self) -> None:
        try:
            self._receive_until_exit()
            if self._attempt >= 0:
                self._post_the_last()
        except Exception as error:  # noqa: BLE001 - a training must not look silent because nothing is received
            now, why = self._now(), notices.error_words(error)
            text = f"stallguard itself failed at listening to the probe ({why}); guarding from outside"
            self._note("trouble", text, error)
            known = [track.last for track in self._tracks.values() if track.last is not None]
            for last in known or [Heartbeat(at=now, attempt=self._attempt)]:
                self._post(msgspec.structs.replace(last, at=now, aside=True))  # it is not to be judged
        os.read(self._ended, 1)
        if self._attempt < 0:
            return
        if self._dropped:
            counts = ", ".join(f"{number} {why}" for why, number in self._dropped.items())
            text = f"messages on the probe's socket that were left out: {counts}"
            self._note("dropped", text)
        (code, memory_kill), (place, process) = self._exit or (0, None), self._crashed
        self._post(
            Exited(
                at=self._now(), attempt=self._attempt, code=code or 0, memory_kill=memory_kill, known=code is not None,
                signal=signals.ended_by(code), where=place, process=process,
            )
        )  # fmt: skip

    def _receive_until_exit(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._named.socket, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while self._exit is None:
                is_busy = any(track.pending or track.leaving for track in self._tracks.values())
                is_ready = bool(selector.select(SOON if is_busy else PAGE_AFTER))
                self._drain()
                self._look()
                self._find_silent()
                if not (self._tracks or self._over):
                    self.outside.look(self._now())
                self._keep_the_name(selector)
                if is_ready and self._exit is None:
                    select.select([self._ended], [], [], REST)

    def _keep_the_name(self, selector: selectors.BaseSelector) -> None:
        """Bind the socket again if its name is gone: a probe that begins later could not find it."""
        now, before = self._now(), self._named.socket
        if now - self._bound_at < LOOK:
            return
        self._bound_at = now
        try:
            if not self._named.renew():
                return
            text = f"the probe's socket was removed from {self.path.parent}: it is there again"
        except OSError as error:
            text = f"the probe's socket was removed from {self.path.parent} ({error.strerror}): "
            text += "what begins now is followed by its page alone"
            if self._unbound:
                return
            self._unbound = True
        else:
            selector.unregister(before)
            self._prepare()
            selector.register(self._named.socket, selectors.EVENT_READ)
            self._unbound = False
        self._note("trouble", text)

    def _note(self, kind: str, text: str, error: Exception | None = None) -> None:
        facts = {} if error is None else {"trace": notices.error_trace(error)}
        self._post(ProbeNote(at=self._now(), attempt=self._attempt, kind=kind, text=text, facts=facts))

    def _drain(self) -> None:
        for _ in range(1000):  # a flood must not keep us from the exit
            data: bytes | None = None
            user: int | None = None
            with contextlib.suppress(BlockingIOError, InterruptedError):
                data, user = system.receive(self._named.socket, 4096)
            if user not in (None, ROOT, os.geteuid()):
                self._dropped[ANOTHERS] += 1
                continue
            try:
                if data is None:
                    self._post_news()
                    return
                self._take(data)
            except Exception as error:  # noqa: BLE001 - one message must not end the thread
                self._dropped[UNREADABLE] += 1
                if self._dropped[UNREADABLE] == 1:
                    why = notices.error_words(error)
                    self._note("trouble", f"a message of the probe cannot be taken ({why}): it is left out", error)

    def _take(self, data: bytes) -> None:
        if data.startswith(b'{"token":%d,' % self._token):  # probe/outbox.py puts it first
            self._post_news()
            self._post(_note_event(jsontext.decode(data, _Note), self._attempt, self._now()))
            return
        record = wire.unpack(data)
        if record is None or record["token"] != self._token:
            self._dropped[FOREIGN] += 1
            return
        now, track = self._now(), self._tracks.get(record["pid"])
        if track is not None and not track.is_of(record):
            self._end(track, track.leaving or REPLACED)
            track = None
        track = track or self._begin(record)
        track.take(record, now)
        before = self._newest.pop(track.pid, None)
        if before is not None and self._observe is not None:
            self._observe(heartbeat(before, self._attempt, now, before["longest_ns"]))
        if track.leaving or track.last is None:
            self._post(track.event(now))
        else:
            self._newest[track.pid] = record

    def _post_news(self) -> None:
        """Post the newest record of each program that is news: of those that waited, an older one shows less."""
        now, newest, self._newest = self._now(), self._newest, {}
        for pid, record in newest.items():
            track = self._tracks[pid]
            if is_news(track.last, record, now):
                self._post(track.event(now))
            elif self._observe is not None:
                self._observe(heartbeat(record, self._attempt, now, record["longest_ns"]))

    def _look(self) -> None:
        """Post what was merged for long enough, and read the pages of programs that send nothing."""
        now = self._now()
        for track in list(self._tracks.values()):
            shown = track.event(now) if track.is_due(now) else track.read_page(now)
            if shown is not None:
                self._post(shown)
            elif how := track.ended(now):
                if how == VANISHED:
                    self._drain()  # its last record can have come since the drain before
                if self._tracks.get(track.pid) is track:
                    self._end(track, how)
        training = [track.program for track in self._tracks.values() if track.trains]
        self._profiles.look(training, self._attempt, now)

    def _begin(self, record: Record) -> Track:
        self.outside.reported(self._now())
        track = self._tracks[record["pid"]] = Track(record, self._attempt, self._pages, self._now())
        for command in self._asked:
            track.ask(command)
        return track

    def _find_silent(self) -> None:
        """Follow a program that never sent a record, by its page alone: it began while the socket had no name.

        It must be of this attempt, live, and have had the time to send a record.  Its probe stamps the page as long as
        it runs; the page of a program that was replaced since has an old stamp.  Two looks are 2 PAGE_AFTER and more
        apart, and a stamp can stay that of the program's first moments: one that holds the interpreter's lock.
        """
        now = self._now()
        if now - self._searched < PAGE_AFTER:
            return
        self._searched = now
        for record in self._unknown_pages():
            is_new = now - record["began_ns"] / 1e9 < PAGE_AFTER
            is_old = now - record["sent_ns"] / 1e9 > 4 * PAGE_AFTER
            if is_new or is_old or system.start_time(record["pid"]) is None:
                continue
            self._post(self._begin(record).event(now, page=True))

    def _unknown_pages(self) -> list[Record]:
        """Return the records in the pages of programs of this attempt that are not followed."""
        records: list[Record] = []
        # A page can vanish, and for a moment there can be no descriptor.
        with contextlib.suppress(OSError):
            for path in self._pages.glob("*.page"):
                if not path.stem.isdecimal() or int(path.stem) in self._tracks:
                    continue
                with contextlib.suppress(OSError):
                    record = wire.unpack(path.read_bytes())
                    if record is None or record["token"] != self._token:
                        continue
                    if (record["pid"], record["began_ns"]) not in self._over:
                        records.append(record)
        return records

    def _end(self, track: Track, how: str) -> None:
        """Post that a program is over, after its last record.  If it only vanished, that record says how it left."""
        track.read_page_once_more()
        if how == VANISHED:
            how = track.leaving or VANISHED
        if track.pending:
            self._post(track.event(self._now()))
        self._profiles.ended(track.program, self._attempt, self._now(), trained=track.trains)
        self._post(ProcessLeft(at=self._now(), attempt=self._attempt, pid=track.pid, how=how))
        del self._tracks[track.pid]
        self._newest.pop(track.pid, None)
        self._over.add(track.program)
        track.close()

    def _post_the_last(self) -> None:
        """Post what was received and what only the pages show, and which programs have ended."""
        self._drain()
        for record in self._unknown_pages():  # of a program that was too short to be found
            self._post(self._begin(record).event(self._now(), page=True))
        for track in list(self._tracks.values()):
            track.read_page_once_more()
            if track.pending:
                self._post(track.event(self._now()))
            if self._exit is not None and self._exit[0] == 0 and not track.sent_record:
                self._profiles.ended(track.program, self._attempt, self._now(), trained=track.trains)
                continue  # it had no socket for a last record; in an attempt that ended with 0 it was not killed
            if track.leaving or not track.lives():
                self._end(track, VANISHED)


def _note_event(note: _Note, attempt: int, at: float) -> ProbeConnected | ProbeNote:
    if note.kind != "hello":
        return ProbeNote(at=at, attempt=attempt, pid=note.pid, kind=note.kind, text=note.text, facts=note.facts)
    from stallguard.collectors.redact import Redactor  # after the first attempt is started

    # The command becomes part of messages, also of notifications, so it must not contain secrets.
    command = Redactor({}, (), str(Path.home())).text(note.command)
    return ProbeConnected(
        at=at, attempt=attempt, pid=note.pid, armed=note.armed, hooks=note.hooks, versions=note.versions,
        threads=note.threads, beyond=note.beyond, place=note.place or NOWHERE, command=command,
    )  # fmt: skip


class Track:
    """One program of an attempt, from its first record on.  All times: seconds on the supervisor's clock."""

    def __init__(self, record: Record, attempt: int, pages: Path, now: float) -> None:
        """`pages`: the directory of the pages."""
        self.pid, self.began = record["pid"], record["began_ns"]
        self.record = record
        self.last: Heartbeat | None = None
        self.sent_record = False  # over the socket; a program without one is followed by its page alone
        self.pending = False  # there is something that the core does not know yet
        # How it left, once it sent its last record: its process can still hang in the interpreter's end.
        self.leaving = ""
        self._attempt = attempt
        self._start = system.start_time(self.pid)
        self._image, self._image_at, self._is_proven = system.program_image(self.pid), now, False
        self._longest = self._longest_phase = 0
        self._received = self._checked = now
        self._page: mmap.mmap | None = None  # without one the program is followed by the socket alone
        with (
            contextlib.suppress(OSError, ValueError),
            open(pages / f"{self.pid}.page", "r+b", opener=private.opener) as file,
        ):
            self._page = mmap.mmap(file.fileno(), wire.SIZE)

    @property
    def program(self) -> Program:
        """Its process' number, and when it began."""
        return self.pid, self.began

    @property
    def trains(self) -> bool:
        """Whether it has trained, by what was posted."""
        return self.last is not None and self.last.trains

    def is_of(self, record: Record) -> bool:
        """Return whether the same program made this record."""
        return record["pid"] == self.pid and record["began_ns"] == self.began

    def take(self, record: Record, now: float) -> None:
        """Take a record from the socket."""
        self._merge(record)
        if self._image is None:  # as in the middle of execve(2), or of another user
            self._image, self._image_at, self._is_proven = system.program_image(self.pid), now, False
        self._received, self.pending, self.sent_record = now, True, True
        if record["kind"] == _BYE:
            self.leaving = HOW_LEFT[bool(record["flags"] & wire.FLAG_FAILED)]

    def is_due(self, now: float) -> bool:
        """Return whether what was merged has waited for long enough."""
        return self.pending and self.last is not None and now - self.last.at >= EVERY

    def event(self, now: float, *, page: bool = False) -> Heartbeat:
        """Return the record as an event, which the caller posts: nothing is pending after this."""
        self.last = heartbeat(self.record, self._attempt, now, self._longest, page=page)
        self._longest, self.pending = 0, False
        return self.last

    def read_page(self, now: float) -> Heartbeat | None:
        """Read the page of a program that has sent nothing for PAGE_AFTER; return its record if that is new."""
        if now - self._received < PAGE_AFTER or not self._read():
            return None
        return self.event(now, page=True)

    def read_page_once_more(self) -> None:
        """Take what was stored in the page and not sent, at the end of the program.

        The page shows how the program left if its last record was lost: the probe does not wait for room in the queue
        of the socket, which holds 10 messages on Linux (net.unix.max_dgram_qlen).
        """
        self.pending = self._read() or self.pending
        record = self._in_page()
        if record is not None and record["kind"] == _BYE:
            self.leaving = HOW_LEFT[bool(record["flags"] & wire.FLAG_FAILED)]

    def _in_page(self) -> Record | None:
        """Return the record in the page, None if that is not of this program."""
        record = wire.unpack(self._page[:]) if self._page is not None else None
        return record if record and self.is_of(record) and record["token"] == self.record["token"] else None

    def _read(self) -> bool:
        """Take the record in the page if it is new; return whether it is."""
        record = self._in_page()
        if record is None:
            return False
        record = with_last_batches(record, self.record)
        known = self.last
        new = known is None or (record["changes"], record["beats"]) != (known.changes, known.beats)
        if new:
            self._merge(record)
        return new

    def _merge(self, record: Record) -> None:
        """Take a newer record; the longest pause since the last event, and its phase, stay those of the longest."""
        self.record = record
        self._is_proven = self._is_proven or record["sent_ns"] / 1e9 > self._image_at
        if record["longest_ns"] >= self._longest:
            self._longest, self._longest_phase = record["longest_ns"], record["longest_phase"]
        else:
            self.record = {**record, "longest_phase": self._longest_phase}

    def lives(self) -> bool:
        """Return whether its process exists."""
        return self._start is not None and system.alive(self.pid, self._start)

    def ended(self, now: float) -> str:
        """Return how a program ended that sent its last record or is silent; "" while nothing shows its end.

        The process of a program that replaced itself lives, and has another image.
        """
        pause = SOON if self.leaving else PAGE_AFTER
        if now - max(self._checked, 0.0 if self.leaving else self._received) < pause:
            return ""
        self._checked = now
        if not self.lives():
            return self.leaving or VANISHED
        image = system.program_image(self.pid)
        return REPLACED if self._is_proven and image and self._image and image != self._image else ""

    def ask(self, command: str) -> bool:
        """Store a command (wire.COMMANDS) in the program's page, for the hooks to find; return False if it has none."""
        page = self._page
        if page is None:
            return False
        place = wire.SLOT["command"] * 8
        with contextlib.suppress(ValueError):  # closed meanwhile: that program is gone
            if command != "caches" or not _COMMAND.unpack_from(page, place)[0]:  # no other order is lost for it
                _COMMAND.pack_into(page, place, wire.COMMANDS.index(command))
        return True

    def close(self) -> None:
        """Unmap the page."""
        if self._page is not None:
            self._page.close()
        self._page = None


def heartbeat(record: Record, attempt: int, at: float, longest: int, *, page: bool = False) -> Heartbeat:
    """Return the record as an event.  `longest`: nanoseconds, the longest pause since the last event."""
    seconds: dict[str, Any] = {f"{name}_at": _seconds(record[f"{name}_ns"]) for name in _TIMES}
    # In the page a hook may have stored a beat alone; what follows from it waits for the probe's thread to run.
    seconds["progress_at"] = max(seconds["progress_at"], seconds["beat_at"])
    counts: dict[str, Any] = {name: record[name] for name in _COUNTS}
    loss, broken = wire.bits_float(record["loss_bits"]) + 0.0, bool(record["flags"] & wire.FLAG_LOSS_BROKEN)
    return Heartbeat(
        at=at, attempt=attempt, phase=_name(wire.PHASES, record["phase"]), longest=_seconds(longest),
        longest_phase=_name(wire.PHASES, record["longest_phase"]), source=_name(wire.SOURCES, record["source"]),
        loss=loss if record["loss_bits"] and math.isfinite(loss) else None,
        loss_not_finite=f"{loss:g}" if broken and not math.isfinite(loss) else "",
        loss_of_epoch=bool(record["flags"] & wire.FLAG_LOSS_OF_EPOCH), input_s=_seconds(record["input_ns"]),
        step_s=_seconds(record["step_ns"]), expect_until=_seconds(record["expect_ns"]), page=page,
        aside=bool(record["flags"] & wire.FLAG_STEPPED_ASIDE), trains=bool(record["flags"] & wire.FLAG_TRAINS),
        wait=_name(wire.WAITS, record["wait"]) if record["wait"] else "", **seconds, **counts,
    )  # fmt: skip


def _seconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e9, 6) if nanoseconds else _ZERO


def _name(names: tuple[str, ...], index: int) -> str:
    return names[index] if 0 <= index < len(names) else names[0]


def is_news(old: Heartbeat | None, record: Record, now: float) -> bool:
    """Return whether a record is posted now, rather than merged with the next one.  `old`: posted last."""
    if old is None:
        return True
    waited = now - old.at
    if waited >= EVERY:
        return True
    changed = record["changes"] != old.changes
    silence_ends = changed and record["progress_ns"] / 1e9 - old.progress_at > SILENT
    phase_moved = _name(wire.PHASES, record["phase"]) != old.phase
    begins = bool(record["flags"] & wire.FLAG_TRAINS) and not old.trains
    return silence_ends or begins or (phase_moved and waited >= SOON)


def with_last_batches(record: Record, before: Record) -> Record:
    """Return a record of the page in which the batches of fit and epoch are those that `beats` has.

    The probe's thread derives them, at most 150 ms later (probe/beats.py).  `before`: an earlier record that was sent,
    which shows how many beats there were when the fit began.
    """
    late = (record["beats"] - record["fit_beats"]) - (before["beats"] - before["fit_beats"])
    same_fit = record["fits"] == before["fits"]
    if late <= 0 or not same_fit or record["source"] != _CALLBACKS or record["batch"] < 0:
        return record
    return {**record, "fit_beats": record["fit_beats"] + late, "batch": record["batch"] + late}

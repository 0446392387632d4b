"""Receives the probes' records and notes, and posts to the mailbox what is new.

One thread owns the socket and the pages.  It keeps one Track a program (program_record.py): a run is often several
processes.  It merges records so that the core gets about one a second of each while all is well, and one at once when
progress resumes after a pause.  It reads the mapped page of a program that sends nothing, and of one that never could
because the socket had no name when it began.  It finds out when a program has ended without a last record, and reads
all of them once more after the child's end, before it posts the exit.  Must not judge anything.

Any process of this user can write to the socket.  So the token is compared before anything is decoded, what does not
carry it is counted and dropped, and an error in one message never ends the thread.  On Linux the kernel says the user
of each sender, and what another user sends is dropped as well.

`watched_from_outside` says whether an attempt is watched from outside only, and why.  A probe waits in each Python
process until a training library is imported, or the script calls stallguard; before that it sends nothing.  So silence
alone shows neither that no library was loaded nor that there is a probe.

`ProfileWatch` posts where the time of each training goes, from the stacks that its probe samples: ever more rarely, and
at its end.  It reads the probe's file of samples, so a training that is killed has a profile too.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from stallguard import jsontext
from stallguard.core.events import Event, Exited, Heartbeat, ProbeConnected, ProbeNote, ProcessLeft, Profiled
from stallguard.host import system
from stallguard.probe import wire
from stallguard.storage import stack_samples
from stallguard.storage.paths import BEATS
from stallguard.supervisor import notices, signals
from stallguard.supervisor.program_record import (
    PAGE_AFTER,
    REPLACED,
    SOON,
    VANISHED,
    Record,
    Track,
    heartbeat,
    is_news,
)
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

# Seconds.  An import of TensorFlow from a slow disk begins within seconds; its probe reports as it begins.
OUTSIDE_AFTER = 60.0
NO_LIBRARY = "watched from outside only: no training library was loaded"
NO_PROBE = "watched from outside only: no report from a probe"
LIBRARY_LOADED = (
    "a training library was loaded, or the script called stallguard: no longer watched from outside only"
)

PROFILE_FIRST = 15.0  # seconds from the first batch to the first profile, and between the first ones
PROFILE_LONGEST = 300.0  # seconds between two at most
PROFILE_SHARE = 0.25  # of the training's age, from one profile to the next: 1 MB of journal a day


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
        self,
        directory: Path,
        pages: Path,
        post: Callable[[Event], None],
        now: Callable[[], float],
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        """Bind the socket `directory`/beats.  `pages`: the directory of the probes' pages.

        `observe` gets the records that are merged with the next one, and so are not posted.
        """
        self.path, self._observe = directory / BEATS, observe
        self._pages, self._post, self._now = pages, post, now
        self.barred = ""  # why the command cannot get a probe, if that is known
        self._named = Named(self.path, socket.SOCK_DGRAM, buffer=RECEIVE_BUFFER)
        self._prepare()
        self._bound_at, self._unbound, self._looked = now(), False, 0.0
        self._ended, self._wake = os.pipe()
        self._thread: Worker | None = None
        self._tracks: dict[int, Track] = {}
        self._profiles = ProfileWatch(pages, post)
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
        self._newest: dict[
            int, Record
        ] = {}  # the newest record of each program that was received and not judged
        self._exit: tuple[int | None, bool | None] | None = None
        self._crashed = ("", "")
        # Programs of this attempt that are over: number, when they began.
        self._over: set[tuple[int, int]] = set()
        self._searched = self._since = self._now()
        self._outside = ""  # how the attempt is watched from outside only

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
            marked = [track.mark_stall(self._now()) for track in list(self._tracks.values())]
            return any(marked)
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
            now, facts = self._now(), {"trace": notices.error_trace(error)}
            why = notices.error_words(error)
            text = f"stallguard itself failed at listening to the probe ({why}); guarding from outside"
            self._post(ProbeNote(at=now, attempt=self._attempt, kind="trouble", text=text, facts=facts))
            known = [track.last for track in self._tracks.values() if track.last is not None]
            for last in known or [Heartbeat(at=now, attempt=self._attempt)]:
                self._post(msgspec.structs.replace(last, at=now, aside=True))  # it is not to be judged
        os.read(self._ended, 1)
        if self._attempt < 0:
            return
        if self._dropped:
            counts = ", ".join(f"{number} {why}" for why, number in self._dropped.items())
            text = f"messages on the probe's socket that were left out: {counts}"
            self._post(ProbeNote(at=self._now(), attempt=self._attempt, kind="dropped", text=text))
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
                self._look_outside()
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
        self._post(ProbeNote(at=now, attempt=self._attempt, kind="trouble", text=text))

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
                if self._dropped[UNREADABLE] > 1:
                    continue
                text = (
                    f"a message of the probe cannot be taken ({notices.error_words(error)}): it is left out"
                )
                facts = {"trace": notices.error_trace(error)}
                self._post(
                    ProbeNote(at=self._now(), attempt=self._attempt, kind="trouble", text=text, facts=facts)
                )

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
                self._end(track, how)
        self._profiles.look(self._tracks.values(), self._attempt, now)

    def _begin(self, record: Record) -> Track:
        if self._outside:
            self._watch_outside("")
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

    def _look_outside(self) -> None:
        """Post whether no program of the attempt has a probe that reports, and why."""
        now = self._now()
        if self._tracks or self._over or now - self._since < OUTSIDE_AFTER or now - self._looked < LOOK:
            return
        self._looked, waiting, loading = now, False, False
        with contextlib.suppress(OSError):  # for a moment there can be no descriptor
            for path in self._pages.iterdir():
                pid, _, kind = path.name.partition(".")
                waiting |= kind == "waiting" and pid.isdecimal() and system.start_time(int(pid)) is not None
                loading |= kind == "loading"
        found = watched_from_outside(ProbeReports(False, waiting, loading), now - self._since, self.barred)
        if found != self._outside:
            self._watch_outside(found)

    def _watch_outside(self, how: str) -> None:
        self._outside, facts = how, {"outside": how}
        text = how or LIBRARY_LOADED
        self._post(ProbeNote(at=self._now(), attempt=self._attempt, kind="outside", text=text, facts=facts))

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
        """Post that a program is over, after its last record."""
        track.read_page_once_more()
        if track.pending:
            self._post(track.event(self._now()))
        self._profiles.ended(track, self._attempt, self._now())
        self._post(ProcessLeft(at=self._now(), attempt=self._attempt, pid=track.pid, how=how))
        del self._tracks[track.pid]
        self._newest.pop(track.pid, None)
        self._over.add((track.pid, track.began))
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
                self._profiles.ended(track, self._attempt, self._now())
                continue  # it had no socket for a last record; in an attempt that ended with 0 it was not killed
            if track.leaving or not track.lives():
                self._end(track, track.leaving or VANISHED)


def _note_event(note: _Note, attempt: int, at: float) -> ProbeConnected | ProbeNote:
    if note.kind != "hello":
        return ProbeNote(
            at=at, attempt=attempt, pid=note.pid, kind=note.kind, text=note.text, facts=note.facts
        )
    from stallguard.collectors.redact import Redactor  # after the first attempt is started

    # The command becomes part of messages, also of notifications, so it must not contain secrets.
    command = Redactor({}, (), str(Path.home())).text(note.command)
    return ProbeConnected(
        at=at, attempt=attempt, pid=note.pid, armed=note.armed, hooks=note.hooks, versions=note.versions,
        threads=note.threads, beyond=note.beyond, place=note.place or NOWHERE, command=command,
    )  # fmt: skip


class ProbeReports(NamedTuple):
    """What is known of the probes of an attempt."""

    ever: bool  # one sent a record: its process imported a library, or called stallguard
    waiting: bool  # one waits for a training library, in a process that lives
    loading: bool  # a process imported one, and sends nothing before it trains: a worker of a pool


def watched_from_outside(reports: ProbeReports, seconds: float, barred: str = "") -> str:
    """Return how an attempt of this age is watched from outside only, "" if it is not, or if that is not known yet.

    `barred`: why the command cannot get a probe, if that is known.
    """
    if reports.ever or reports.loading or seconds < OUTSIDE_AFTER:
        return ""
    if reports.waiting:
        return NO_LIBRARY
    return f"{NO_PROBE}: {barred}" if barred else NO_PROBE


class ProfileWatch:
    """Knows of each program when its next profile is due."""

    def __init__(self, probe: Path, post: Callable[[Event], None]) -> None:
        """`probe`: the directory of the probe's files; `post`: takes the events."""
        self._probe, self._post = probe, post
        self._since: dict[tuple[int, int], float] = {}  # program -> when it was first seen to train
        self._due: dict[tuple[int, int], float] = {}
        self._posted: dict[tuple[int, int], int] = {}  # samples of the last profile
        self._failed = False  # an error of ours was reported

    def look(self, tracks: Iterable[Track], attempt: int, now: float) -> None:
        """Post the profiles that are due."""
        for track in tracks:
            if track.last is None or not track.last.trains:
                continue
            key = (track.pid, track.began)
            since = self._since.setdefault(key, now)
            if now < self._due.setdefault(key, now + PROFILE_FIRST):
                continue
            self._due[key] = now + min(PROFILE_LONGEST, max(PROFILE_FIRST, PROFILE_SHARE * (now - since)))
            self._post_profile(track, attempt, now)

    def ended(self, track: Track, attempt: int, now: float) -> None:
        """Post the last profile of a program that is over."""
        key = (track.pid, track.began)
        if key in self._since or (track.last is not None and track.last.trains):
            self._post_profile(track, attempt, now)
        for known in (self._since, self._due, self._posted):
            known.pop(key, None)

    def _post_profile(self, track: Track, attempt: int, now: float) -> None:
        """Post a profile; an error in it must not end the thread that receives the records."""
        try:
            self._read(track, attempt, now)
        except Exception as error:  # noqa: BLE001 - reported, once
            if self._failed:
                return
            self._failed = True
            text = f"where the time goes cannot be read ({notices.error_words(error)})"
            facts = {"trace": notices.error_trace(error)}
            self._post(ProbeNote(at=now, attempt=attempt, kind="trouble", text=text, facts=facts))

    def _read(self, track: Track, attempt: int, now: float) -> None:
        from stallguard.collectors import stack_profile  # after the first attempt is started

        try:
            samples = stack_samples.read(stack_samples.path(self._probe, track.pid))
        except OSError:
            return  # a probe that cannot sample, or could not write: there is no profile
        key = (track.pid, track.began)
        if samples is None or samples.began != track.began or self._posted.get(key) == samples.samples:
            return
        self._posted[key] = samples.samples
        profile = stack_profile.summarise(samples)
        self._post(Profiled(at=now, attempt=attempt, pid=track.pid, profile=profile))

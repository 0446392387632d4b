"""What is found out about an attempt beside its probes' records: where its time goes, and whether a probe reports.

`ProfileWatch` posts where the time of each training goes, from the stacks that its probe samples: ever more rarely, and
at its end.  It reads the probe's file of samples, so a training that is killed has a profile too.

`OutsideWatch` posts whether an attempt is watched from outside only, and why.  A probe waits in each Python process
until a training library is imported, or the script calls stallguard; before that it sends nothing.  So silence alone
shows neither that no library was loaded nor that there is a probe.  Must not judge anything.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from stallguard.core.events import Event, ProbeNote, Profiled
from stallguard.host import system
from stallguard.probe import wire
from stallguard.storage import private, stack_samples
from stallguard.supervisor import notices
from stallguard.supervisor.sockets import LOOK

_TIME = struct.Struct("<q")  # nanoseconds
FIRST = 15.0  # seconds from the first batch to the first profile, and between the first ones
LONGEST = 300.0  # seconds between two at most
SHARE = 0.25  # of the training's age, from one profile to the next: 1 MB of journal a day

# Seconds.  An import of TensorFlow from a slow disk begins within seconds; its probe reports as it begins.
OUTSIDE_AFTER = 60.0
NO_LIBRARY = "watched from outside only: no training library was loaded"
NO_PROBE = "watched from outside only: no report from a probe"
LIBRARY_LOADED = "a training library was loaded, or the script called stallguard: no longer watched from outside only"

Program = tuple[int, int]  # number of its process, and when it began


class OutsideWatch:
    """Of a run's attempts, one after the other.  `barred`: why the command cannot get a probe, if that is known.

    `after`: seconds without a report until one can be missed.
    """

    def __init__(self, pages: Path, post: Callable[[Event], None]) -> None:
        """`pages`: the directory of the probe's files; `post`: takes the events."""
        self._pages, self._post, self.barred, self.after = pages, post, "", OUTSIDE_AFTER

    def begin(self, attempt: int, now: float) -> None:
        """Begin anew for `attempt`, which begins now."""
        self._attempt, self._since, self._looked, self._outside = attempt, now, 0.0, ""

    def look(self, now: float) -> None:
        """Post what is known if it is news; while no probe of the attempt has reported."""
        if now - self._since < self.after or now - self._looked < LOOK:
            return
        self._looked, waiting, loading = now, False, False
        with contextlib.suppress(OSError):  # for a moment there can be no descriptor
            for path in self._pages.iterdir():
                pid, _, kind = path.name.partition(".")
                waiting |= kind == "waiting" and pid.isdecimal() and system.start_time(int(pid)) is not None
                # Imported a library, and sends nothing before it trains: of a pool.
                loading |= kind == "loading"
        found = NO_LIBRARY if waiting else f"{NO_PROBE}: {self.barred}" if self.barred else NO_PROBE
        self._found("" if loading else found, now)

    def reported(self, now: float) -> None:
        """Post that the attempt is not watched from outside only any more, if it was: a probe has reported."""
        self._found("", now)

    def _found(self, how: str, now: float) -> None:
        if how == self._outside:
            return
        self._outside, text = how, how or LIBRARY_LOADED
        self._post(ProbeNote(at=now, attempt=self._attempt, kind="outside", text=text, facts={"outside": how}))


class ProfileWatch:
    """Knows of each program when its next profile is due."""

    def __init__(self, probe: Path, post: Callable[[Event], None]) -> None:
        """`probe`: the directory of the probe's files; `post`: takes the events."""
        self._probe, self._post = probe, post
        self._since: dict[Program, float] = {}  # when it was first seen to train
        self._due: dict[Program, float] = {}
        self._posted: dict[Program, int] = {}  # samples of the last profile
        self._failed = False  # an error of ours was reported

    def look(self, training: Iterable[Program], attempt: int, now: float) -> None:
        """Post the profiles that are due.  `training`: the programs that have trained."""
        for program in training:
            since = self._since.setdefault(program, now)
            if now < self._due.setdefault(program, now + FIRST):
                continue
            self._due[program] = now + min(LONGEST, max(FIRST, SHARE * (now - since)))
            self._post_profile(program, attempt, now)

    def ended(self, program: Program, attempt: int, now: float, *, trained: bool) -> None:
        """Post the last profile of a program that is over.  `trained`: it did, by its newest record."""
        if program in self._since or trained:
            self._post_profile(program, attempt, now)
        for known in (self._since, self._due, self._posted):
            known.pop(program, None)

    def mark_stall(self, pids: Iterable[int], now: float) -> bool:
        """Write into the samples of the programs that the present gap is a stall; return whether any has samples."""
        marked = False
        for pid in pids:
            with (
                contextlib.suppress(OSError),
                open(stack_samples.path(self._probe, pid), "r+b", buffering=0, opener=private.opener) as samples,
            ):
                os.pwrite(samples.fileno(), _TIME.pack(int(now * 1e9)), wire.PROFILE_STALLED)
                marked = True
        return marked

    def _post_profile(self, program: Program, attempt: int, now: float) -> None:
        """Post a profile; an error in it must not end the thread that receives the records."""
        try:
            self._read(program, attempt, now)
        except Exception as error:  # noqa: BLE001 - reported, once
            if not self._failed:
                self._failed = True
                text = f"where the time goes cannot be read ({notices.error_words(error)})"
                facts = {"trace": notices.error_trace(error)}
                self._post(ProbeNote(at=now, attempt=attempt, kind="trouble", text=text, facts=facts))

    def _read(self, program: Program, attempt: int, now: float) -> None:
        from stallguard.collectors import stack_profile  # after the first attempt is started

        pid, began = program
        try:
            samples = stack_samples.read(stack_samples.path(self._probe, pid))
        except OSError:
            return  # a probe that cannot sample, or could not write: there is no profile
        if samples is None or samples.began != began or self._posted.get(program) == samples.samples:
            return
        self._posted[program] = samples.samples
        self._post(Profiled(at=now, attempt=attempt, pid=pid, profile=stack_profile.summarise(samples)))

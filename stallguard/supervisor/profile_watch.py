"""Posts where the time of each training goes, from the stacks that its probe samples: ever more rarely, and at its end.

It reads the probe's file of samples, so a training that is killed has a profile too.  The receiver's thread calls it
(heartbeats.py).  Must not judge anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stallguard.core.events import Event, ProbeNote, Profiled
from stallguard.storage import stack_samples
from stallguard.supervisor import internal_error
from stallguard.supervisor.program_record import Track

FIRST = 15.0  # seconds from the first batch to the first profile, and between the first ones
LONGEST = 300.0  # seconds between two at most
SHARE = 0.25  # of the training's age, from one profile to the next: 1 MB of journal a day


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
            if now < self._due.setdefault(key, now + FIRST):
                continue
            self._due[key] = now + min(LONGEST, max(FIRST, SHARE * (now - since)))
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
            text = f"where the time goes cannot be read ({internal_error.words(error)})"
            facts = {"trace": internal_error.trace(error)}
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

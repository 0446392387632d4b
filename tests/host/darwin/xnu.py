"""kqueue as XNU has it, for EVFILT_PROC alone: `Xnu` takes the place of the module select.

bsd/kern/kern_event.c: a registration that fails is an error of kevent(2) if the event list has no room, else an event
with EV_ERROR and the errno as its data.  filt_procattach: ESRCH for a process that has ended, zombies too.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

NOTE_EXIT, NOTE_EXITSTATUS, NOTE_EXIT_DETAIL = 0x8000_0000, 0x0400_0000, 0x0200_0000


class Event(NamedTuple):
    """struct kevent."""

    ident: int
    filter: int
    flags: int
    fflags: int = 0
    data: int = 0


class Xnu:
    """A kernel with processes that have not ended (`living`) and the exit data of each that ends while watched."""

    KQ_FILTER_PROC = -5
    KQ_EV_ADD, KQ_EV_ONESHOT, KQ_EV_ERROR = 0x1, 0x10, 0x4000
    KQ_NOTE_EXIT = NOTE_EXIT

    def __init__(self, living: dict[int, int]) -> None:
        self.living, self.open = living, 0

    def kevent(self, ident: int, kind: int, flags: int, fflags: int) -> Event:
        assert kind == self.KQ_FILTER_PROC
        return Event(ident, kind, flags, fflags)

    def kqueue(self) -> _Queue:
        self.open += 1
        return _Queue(self)


class _Queue:
    def __init__(self, kernel: Xnu) -> None:
        self._kernel, self._watched = kernel, list[Event]()

    def control(self, changes: list[Event] | None, room: int, _seconds: float | None = None) -> list[Event]:
        failed = []
        for change in changes or ():
            if change.ident in self._kernel.living:
                self._watched.append(change)
            elif not room:
                raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
            else:
                flags = change.flags | self._kernel.KQ_EV_ERROR
                failed.append(change._replace(flags=flags, data=errno.ESRCH))
        ended = [one._replace(data=self._kernel.living[one.ident] if _asks(one) else 0) for one in self._watched]
        return (failed + ended)[:room]

    def close(self) -> None:
        self._kernel.open -= 1


def _asks(watch: Event) -> bool:
    return bool(watch.fflags & NOTE_EXITSTATUS and watch.fflags & NOTE_EXIT_DETAIL)

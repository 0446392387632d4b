"""What the user's keyboard and the system say to us, turned into events; nothing is decided in a handler.

Ctrl-C reaches only us, because the training has a session of its own: it is passed on by the core's decision.
Ctrl-Z stops the training and then us, as it would stop both without us.
A signal that would end us, and that has a meaning for a script (Slurm's SIGUSR1 before the time limit), is passed on to
the training's first process alone, which is the one that would have got it without us.
While a run is being made, or put away, it cannot be asked to end: what is asked then is kept for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from stallguard.core.events import UserCommand
from stallguard.supervisor.context import Mailbox

ASKS = {signal.SIGINT: "interrupt", signal.SIGTERM: "stop", signal.SIGHUP: "stop", signal.SIGQUIT: "stop"}

# Their default action ends a process.  Not SIGPIPE and SIGXFSZ, which Python ignores here as in the training; nor those
# by which the system reports a crash.
_NAMES = "SIGUSR1 SIGUSR2 SIGALRM SIGVTALRM SIGPROF SIGXCPU SIGIO SIGPWR SIGSTKFLT SIGEMT".split()
_FIRST, _LAST = int(getattr(signal, "SIGRTMIN", 1)), int(getattr(signal, "SIGRTMAX", 0))  # macOS has none
PASSED_ON = {
    **{int(getattr(signal, name)): name for name in _NAMES if hasattr(signal, name)},
    **{number: f"SIGRTMIN+{number - _FIRST}" for number in range(_FIRST, _LAST + 1)},
}

Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def deferred_signals() -> Iterator[list[int]]:
    """Keep the signals that arrive before there is a run, and after it; yields the list for `forwarded`.

    Without it a run that is ended in its first or last moment leaves its directories behind.  A second signal acts at
    once, as without stallguard.

    Some launchers ignore SIGCHLD, and a program that is started inherits that: the kernel then throws away how a child
    ended, and no wait returns before the last child is gone.
    """
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    kept: list[int] = []

    def keep(number: int, _frame: FrameType | None) -> None:
        if kept:
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)
        kept.append(number)

    with _handled({**dict.fromkeys(PASSED_ON, lambda *_: None), **dict.fromkeys(ASKS, keep)}) as before:
        yield kept


def ended_by(code: int | None) -> str:
    """Return the name of the signal that ended a process, "" if none did or it has no name.

    `code`: as subprocess has it, None if it is not known.
    """
    if code is None or code >= 0:
        return ""
    return PASSED_ON.get(-code) or next((one.name for one in signal.Signals if one == -code), "")


@contextlib.contextmanager
def forwarded(
    mailbox: Mailbox, now: Callable[[], float], pass_on: Callable[[str], None], kept: list[int]
) -> Iterator[None]:
    """Handle the signals for the length of a run, those that were `kept` for it first.

    `pass_on(name)` sends one to the training's group at once.
    """

    def ask(number: int, _frame: FrameType | None) -> None:
        mailbox.post(UserCommand(at=now(), verb=ASKS[signal.Signals(number)], argument=signal.Signals(number).name))

    def forward(number: int, _frame: FrameType | None) -> None:
        mailbox.post(UserCommand(at=now(), verb="signal", argument=PASSED_ON[number], number=number))

    def pause(_number: int, _frame: FrameType | None) -> None:
        pass_on("STOP")  # SIGTSTP would be ignored: the training's group has no terminal of its own
        os.kill(os.getpid(), signal.SIGSTOP)
        pass_on("CONT")

    def resize(_number: int, _frame: FrameType | None) -> None:
        pass_on("WINCH")

    handlers: dict[int, Handler] = {**dict.fromkeys(PASSED_ON, forward), **dict.fromkeys(ASKS, ask)}
    with _handled(handlers | {signal.SIGTSTP: pause, signal.SIGWINCH: resize}):
        while kept:
            ask(kept.pop(0), None)
        yield


@contextlib.contextmanager
def _handled(wanted: Mapping[int, Handler]) -> Iterator[dict[int, Any]]:
    """Have the signals handled so; yields what handled them before, and lets it again at the end."""
    # What we were started with as ignored stays ignored: nohup, a background job of a plain shell.
    handlers = {number: how for number, how in wanted.items() if signal.getsignal(number) != signal.SIG_IGN}
    before: dict[int, Any] = {number: signal.signal(number, how) for number, how in handlers.items()}
    try:
        yield before
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)

"""What the user's keyboard and the system say to us, turned into events; nothing is decided in a handler.

Ctrl-C reaches only us, because the training has a session of its own: it is passed on by the core's decision.
Ctrl-Z stops the training and then us, as it would stop both without us.
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
from stallguard.supervisor.mailbox import Mailbox

ASKS = {signal.SIGINT: "interrupt", signal.SIGTERM: "stop", signal.SIGHUP: "stop", signal.SIGQUIT: "stop"}

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

    with _handled(dict.fromkeys(ASKS, keep)) as before:
        yield kept


@contextlib.contextmanager
def forwarded(
    mailbox: Mailbox, now: Callable[[], float], pass_on: Callable[[str], None], kept: list[int]
) -> Iterator[None]:
    """Handle the signals for the length of a run, those that were `kept` for it first.

    `pass_on(name)` sends one to the training's group at once.
    """

    def ask(number: int, _frame: FrameType | None) -> None:
        mailbox.post(
            UserCommand(at=now(), verb=ASKS[signal.Signals(number)], argument=signal.Signals(number).name)
        )

    def pause(_number: int, _frame: FrameType | None) -> None:
        pass_on("STOP")  # SIGTSTP would be ignored: the training's group has no terminal of its own
        os.kill(os.getpid(), signal.SIGSTOP)
        pass_on("CONT")

    def resize(_number: int, _frame: FrameType | None) -> None:
        pass_on("WINCH")

    with _handled(dict.fromkeys(ASKS, ask) | {signal.SIGTSTP: pause, signal.SIGWINCH: resize}):
        while kept:
            ask(kept.pop(0), None)
        yield


@contextlib.contextmanager
def _handled(wanted: Mapping[signal.Signals, Handler]) -> Iterator[dict[int, Any]]:
    """Have the signals handled so; yields what handled them before, and lets it again at the end."""
    # What we were started with as ignored stays ignored: nohup, a background job of a plain shell.
    handlers = {number: how for number, how in wanted.items() if signal.getsignal(number) != signal.SIG_IGN}
    before: dict[int, Any] = {number: signal.signal(number, how) for number, how in handlers.items()}
    try:
        yield before
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)

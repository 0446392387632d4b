"""What the user's keyboard and the system say to us, turned into events; nothing is decided in a handler.

Ctrl-C reaches only us, because the training has a session of its own: it is passed on by the core's decision.
Ctrl-Z stops the training and then us, as it would stop both without us.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from stallguard.core.events import Asked
from stallguard.supervisor.mailbox import Mailbox

ASKS = {signal.SIGINT: "interrupt", signal.SIGTERM: "stop", signal.SIGHUP: "stop", signal.SIGQUIT: "stop"}


@contextlib.contextmanager
def forwarded(mailbox: Mailbox, now: Callable[[], float], pass_on: Callable[[str], None]) -> Iterator[None]:
    """Handle the signals for the length of a run.  `pass_on(name)` sends one to the training's group at once."""

    def ask(number: int, _frame: FrameType | None) -> None:
        mailbox.post(Asked(at=now(), verb=ASKS[signal.Signals(number)], argument=signal.Signals(number).name))

    def pause(_number: int, _frame: FrameType | None) -> None:
        pass_on("STOP")  # SIGTSTP would be ignored: the training's group has no terminal of its own
        os.kill(os.getpid(), signal.SIGSTOP)
        pass_on("CONT")

    def resize(_number: int, _frame: FrameType | None) -> None:
        pass_on("WINCH")

    wanted = dict.fromkeys(ASKS, ask) | {signal.SIGTSTP: pause, signal.SIGWINCH: resize}
    # What we were started with as ignored stays ignored: nohup, a background job of a plain shell.
    handlers = {number: how for number, how in wanted.items() if signal.getsignal(number) != signal.SIG_IGN}
    before = {number: signal.signal(number, how) for number, how in handlers.items()}
    try:
        yield
    finally:
        for number, how in before.items():
            signal.signal(number, how)

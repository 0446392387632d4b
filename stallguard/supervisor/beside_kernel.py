"""The process beside a notebook's kernel: `%load_ext stallguard` (stallguard/notebook.py) starts it.

It writes lines for the kernel's thread: first one of JSON, with the run and the settings of the probe; one of JSON when
the evidence of a stall is kept; and the sentences that a terminal would show.  It reads one order: to leave.  The end
of its input is none: a kernel that dies closes it too, and that is an end of the run with another reason.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stallguard import config
from stallguard.core.events import Collected, Event, UserCommand
from stallguard.errors import OWN_FAILURE, StallguardError
from stallguard.launch import request
from stallguard.probe.settings import VARIABLE
from stallguard.storage import run_files
from stallguard.supervisor import watching
from stallguard.supervisor.session import Session
from stallguard.supervisor.signals import deferred_signals
from stallguard.worker import Worker

LEAVE = b"leave"
LAST = 1.5  # seconds for the last records of the probe, which are posted once a second, to be counted


def _report(**facts: Any) -> None:
    try:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()
    except OSError:  # the kernel is gone, which its end shows
        pass


def _observe(event: Event) -> None:
    if isinstance(event, Collected) and event.incident:
        _report(evidence=event.where)


def _await_order(session: Session) -> None:
    for line in sys.stdin.buffer:
        if line.strip() == LEAVE:
            time.sleep(LAST)
            session.context.mailbox.post(UserCommand(at=session.context.clock.monotonic(), verb="stop"))


def main(pid: int, notebook: str) -> int:
    """Watch the kernel `pid` of `notebook` until it ends, or until the order to leave; return the exit code."""
    if os.fork():  # no child of the kernel: its processor time and threads are not the training's
        os._exit(0)
    cwd = Path.cwd()
    with deferred_signals() as kept:
        try:
            who = run_files.identity(pid)
            settings = watching.settings(lambda: config.load({"output.color": "never"}, os.environ, cwd))
            asked = request.of_process(
                (notebook,),
                [sys.executable, "-m", "ipykernel_launcher", notebook],
                Path(notebook).stem,
                settings.loaded,
                cwd,
            )

            def give(environment: Mapping[str, str]) -> None:
                _report(pid=os.getpid(), run=asked.run.id, settings=environment[VARIABLE])

            session = watching.session(asked, settings, os.environ, who, give, observe=_observe)
        except (StallguardError, OSError) as error:
            sys.stdout.write(f"{error}\n")
            return OWN_FAILURE
        Worker(partial(_await_order, session), "orders").start()
        return session.guard(kept)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))

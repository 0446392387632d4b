"""Problems of stallguard itself reach the user, whenever they occur."""

from __future__ import annotations

import time
from typing import Any

from stallguard.core.actions import Announce
from stallguard.host import system
from stallguard.supervisor.context import CurrentRun, Mailbox, Reporter


class Said:
    """Takes the place of the journal and of the terminal."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def write(self, _at: float, action: Announce) -> None:
        self.texts.append(action.facts["text"])

    def announce(self, _message: str, facts: dict[str, str]) -> None:
        self.texts.append(facts["text"])


def test_a_problem_that_occurs_while_the_run_is_concluded_is_still_reported() -> None:
    """A notification can fail between the announcement of the end and the exit code: no event is read after that."""
    said: Any = Said()
    reporter = Reporter(Mailbox(time.monotonic), system, CurrentRun(), said, said)
    reporter.trouble("notifications are not sent")
    reporter.note("settings", "stop.grace is now 40s, from now on")
    assert said.texts == []

    reporter.report_rest()
    reporter.report_rest()

    assert said.texts == ["notifications are not sent"] * 2, "in the journal and at the terminal, once"

"""Hands each action of the core to the part that does it.

No part blocks the deciding thread.  Must not decide anything, not even after an error.
"""

from __future__ import annotations

from stallguard.core.actions import Action, Announce, Ask, Collect, Conclude, Launch, Signal
from stallguard.core.run import Run
from stallguard.supervisor.evidence_collector import EvidenceCollector
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.launcher import Launcher
from stallguard.supervisor.notifications import Notifications
from stallguard.supervisor.output.notices import Terminal


class Executor:
    """Performs the actions of one run.  `why`: why the run ended, once it is concluded."""

    def __init__(
        self,
        launcher: Launcher,
        beats: HeartbeatListener,
        evidence: EvidenceCollector,
        terminal: Terminal,
        notifications: Notifications,
    ) -> None:
        """Take the parts that act."""
        self._launcher, self._beats, self._evidence = launcher, beats, evidence
        self._terminal, self._notifications = terminal, notifications
        self.why = ""

    def perform(self, action: Action, run: Run) -> None:
        """Do one action."""
        match action:
            case Launch():
                self._launcher.launch(action)
            case Signal():
                self._launcher.signal(action.name, action.number)
            case Ask():  # if no process has a page, the core's deadline leads to a signal
                self._beats.ask(action.command)
            case Collect():
                self._evidence.collect(action, run)
            case Announce():
                self._terminal.announce(action.message, action.facts)
                self._notifications.send(action, run)
            case Conclude():
                self.why = action.why
            case _:  # Found is for the journal alone
                pass

"""Sends the sentences of a run over the channels that the settings name."""

from __future__ import annotations

from stallguard import notify
from stallguard.config.sections import Config
from stallguard.core import trainings
from stallguard.core.actions import Announce
from stallguard.core.run import Run
from stallguard.report.narrative import sentence
from stallguard.report.overnight import far
from stallguard.supervisor.context import RunContext

FINAL = (*notify.OCCASIONS["finish"], *notify.OCCASIONS["give_up"])  # messages that end a run


class Notifications:
    """Of one run; closed until `open`."""

    def __init__(self, context: RunContext) -> None:
        """Send nothing yet."""
        self._context = context
        self._notifier: notify.Notifier | None = None

    def open(self, config: Config) -> None:
        """Prepare the channels that `config` names; they replace the earlier ones."""
        before, wanted, trouble = self._notifier, config.notify, self._context.reporter.trouble
        channels = notify.channels(wanted, self._context.env, trouble)
        self._notifier = notify.Notifier(channels, trouble, notify.kinds(wanted.on), wanted.every)
        if before is not None:
            before.close()

    def send(self, action: Announce, run: Run) -> None:
        """Send one sentence; the last one of a run says how far the training came."""
        if self._notifier is None:
            return
        text, heartbeat = sentence(action.message, action.facts), run.history.heartbeat
        # The progress of one of several trainings says nothing about the run.
        if action.message in FINAL and heartbeat is not None and not trainings.many(run):
            epoch = heartbeat.epoch + 1 if heartbeat.epoch >= 0 else None
            reached = far(epoch, heartbeat.epochs if heartbeat.epochs > 0 else None, heartbeat.loss)
            text = f"{text}; {reached}" if reached else text
        self._notifier.notify(action.message, f"stallguard: {self._context.directory.id}", text, run.now)

    def close(self) -> None:
        """Wait a moment until the last notification is sent."""
        if self._notifier is not None:
            self._notifier.close()

"""Sends the sentences of a run over the channels that the settings name, and keeps what became of them."""

from __future__ import annotations

import contextlib

from stallguard import notify
from stallguard.config.table import Config
from stallguard.core.actions import Announce
from stallguard.core.run import Run
from stallguard.core.text import far, loss_words
from stallguard.report.narrative import sentence
from stallguard.storage import run_files
from stallguard.storage.run_files import ChannelRecord
from stallguard.supervisor.context import RunContext

FINAL = (*notify.OCCASIONS["finish"], *notify.OCCASIONS["give_up"])  # messages that end a run


class Notifications:
    """Of one run; closed until `open`."""

    def __init__(self, context: RunContext) -> None:
        """Send nothing yet."""
        self._context = context
        self._notifier: notify.Notifier | None = None

    @property
    def records(self) -> list[ChannelRecord]:
        """What became of the notifications, by channel."""
        return self._notifier.records if self._notifier else []

    def open(self, config: Config) -> None:
        """Prepare the channels that `config` names; they replace the earlier ones."""
        before, wanted = self._notifier, config.notify
        self._notifier = notify.Notifier(
            notify.configured(wanted, self._context.env),
            self._context.reporter.trouble,
            notify.kinds(wanted.on),
            wanted.every,
            self._keep,
        )
        if before is not None:
            before.close()

    def _keep(self, records: list[ChannelRecord]) -> None:
        # A full disk: a live run shows them, and the journal has the failures.
        with contextlib.suppress(OSError):
            run_files.keep_notifications(self._context.directory, records)

    def send(self, action: Announce, run: Run) -> None:
        """Send one sentence; the last one of a run says how far the training came."""
        if self._notifier is None:
            return
        text, heartbeat = sentence(action.message, action.facts), run.history.heartbeat
        # The progress of one of several trainings says nothing about the run.
        if action.message in FINAL and heartbeat is not None and run.current.begun <= 1:
            epoch = heartbeat.epoch + 1 if heartbeat.epoch >= 0 else None
            loss = loss_words(heartbeat.loss, heartbeat.loss_not_finite)
            inside = heartbeat.source == "callbacks" and not heartbeat.loss_of_epoch
            loss += (
                " so far in its epoch" if loss and inside and 0 <= heartbeat.batch < heartbeat.batches else ""
            )
            reached = far(epoch, heartbeat.epochs if heartbeat.epochs > 0 else None, loss)
            text = f"{text}; {reached}" if reached else text
        name = self._context.directory.id
        self._notifier.notify(notify.notification(action.message, f"stallguard: {name}", text, name), run.now)

    def close(self) -> None:
        """Wait a moment until the last notification is sent."""
        if self._notifier is not None:
            self._notifier.close()

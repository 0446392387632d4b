"""Notifications: to the desktop, to a command of the user, to Apprise addresses (extra `notify`).

`configured` makes the configured channels, `Notifier` sends over them during a run, `test` sends one over each.  A
notification must never delay, stop or fail a run.
"""

from __future__ import annotations

from stallguard.notify.channels import DEADLINE, NO_APPRISE, Channel, configured, desktop, has_apprise, unusable
from stallguard.notify.message import MISSED, OCCASIONS, SUMMARY, TEST, Notification, kinds, notification
from stallguard.notify.notifier import LAST_SEND, Notifier, SendResult, test

# osascript exits with 0 even if the user has disabled its notifications, which appear under the name of its app.
ALLOW_ON_MAC = "System Settings > Notifications > Script Editor: allow notifications (and no Focus that silences them)"

__all__ = [
    "ALLOW_ON_MAC", "DEADLINE", "LAST_SEND", "MISSED", "NO_APPRISE", "OCCASIONS", "SUMMARY", "TEST", "Channel",
    "Notification", "Notifier", "SendResult", "configured", "desktop", "has_apprise", "kinds", "notification", "test",
    "unusable",
]  # fmt: skip

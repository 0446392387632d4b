"""Why Apprise did not send a message: it logs the reason.

Apart from addresses.py, because `logging` takes 8 ms that a run without addresses need not pay.
"""

from __future__ import annotations

import logging
import threading


class NewestWarning(logging.Handler):
    """The newest warning of the thread that makes it: each channel sends on a thread of its own."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread, self.text = threading.get_ident(), ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a record of this thread."""
        if record.thread == self._thread:
            self.text = record.getMessage()

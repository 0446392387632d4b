"""Whether the main thread runs Python code, though each look finds it at the same instruction.

A loop that reads a value of a device for each batch releases the interpreter's lock only there, so another thread
always finds it there: an evaluation of five minutes looks like one wait.  A pending call of the interpreter
(Py_AddPendingCall) is made by the main thread between two instructions, and by no other; so it shows that it got that
far.  What is called is a function in C that fills a buffer: no code of the probe runs in the script's thread, and
nothing can be raised there.  It is asked for only while the thread stands still, twice a second.

This runs in the sender's thread: it must not import anything.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SIZE = 4096  # bytes; struct utsname has 390 on Linux and 1280 on macOS


class Progress:
    """Asks the main thread for a sign, again and again."""

    def __init__(self) -> None:
        self._ctypes: Any = None
        self._sign: Any = None  # what uname() fills; it lives as long as the process, because a call can come late
        self._fails = False

    def has_run(self, thread: int) -> bool:
        """Return whether `thread` has run Python code since the last call; False if it is not the main thread."""
        threading = sys.modules.get("threading")
        if self._fails or threading is None or threading.main_thread().ident != thread:
            return False
        try:
            return self._asked()
        except Exception:
            self._fails = True  # an interpreter without this function
            return False

    def _asked(self) -> bool:
        if self._sign is None:
            self._ctypes = sys.modules.get("ctypes")  # training libraries import it
            if self._ctypes is None:
                return False
            self._sign = self._ctypes.create_string_buffer(_SIZE)
        elif self._sign[0] == b"\0":
            return False  # it was asked, and did not answer
        came = self._sign[0] != b"\0"
        self._sign[0] = b"\0"
        api = self._ctypes.pythonapi
        api.Py_AddPendingCall(api.uname, self._sign)
        return bool(came)

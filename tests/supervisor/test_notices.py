"""Our own words: a terminal that takes nothing holds up nobody who decides."""

from __future__ import annotations

import os
import time

from stallguard.supervisor import notices
from stallguard.supervisor.notices import Terminal


def test_a_terminal_that_is_stopped_holds_up_only_the_one_who_writes() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    with os.fdopen(reader, "rb", buffering=0) as screen, os.fdopen(writer, "w") as stream:
        ours = Terminal(stream, quiet=False, color=False)
        began = time.monotonic()
        ours.say("one")
        ours.say("two")
        assert time.monotonic() - began < notices.LAST_WORDS / 2

        said = b""
        while not said.endswith(b"two\n"):
            said += screen.read(65536)
        ours.close()
    assert said.endswith(b"stallguard: one\nstallguard: two\n")

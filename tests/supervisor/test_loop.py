"""The deciding thread: when it counts as hanging."""

from __future__ import annotations

from stallguard.supervisor.loop import OWN_HANG, REARM
from stallguard.supervisor.mailbox import LONGEST_NAP


def test_a_loop_that_waits_for_an_event_does_not_dump_its_stacks():
    # The timer is started again at most every REARM; a wait can begin just before that, and ends a little late.
    lateness = 10.0
    assert REARM + LONGEST_NAP + lateness < OWN_HANG + REARM

"""The watched clock: it advances only while the supervisor runs.

A gap must not grow while the machine sleeps, while a virtual machine is paused, or while the supervisor itself
gets no processor; clocks of the systems differ in what they count.  So every event may add at most
`longest_tick` seconds, or what it says that it sums up.  (Cassandra's failure detector guards against a "local pause"
for the same reason.)
This module must not read a clock: time comes in with the events.
"""

from __future__ import annotations

import msgspec

from stallguard.core.tuning import DetectorLimits


class WatchedClock(msgspec.Struct, frozen=True, omit_defaults=True):
    """`now`: watched seconds; `at`: the supervisor's clock at the last event; `grace`: no judgement before."""

    now: float = 0.0
    at: float | None = None
    grace: float = 0.0
    missed: float = 0.0  # when the supervisor last ran again after a pause of its own, by its clock


def advance(
    clock: WatchedClock, at: float, limits: DetectorLimits, steady: float = 0.0
) -> tuple[WatchedClock, bool]:
    """Return the clock after an event at `at` seconds, and whether the supervisor missed some time.

    `steady`: seconds before `at` in which the supervisor ran although no event came.
    Time that runs backwards adds nothing, and the later reading is kept.
    """
    if clock.at is None:
        return msgspec.structs.replace(clock, at=at), False
    passed = at - clock.at
    if passed <= 0.0:
        return clock, False
    now = clock.now + min(passed, max(limits.longest_tick, steady))
    missed = passed - steady > limits.starved
    if not missed:
        return msgspec.structs.replace(clock, now=now, at=at), False
    return WatchedClock(now, at, grace=now + limits.grace, missed=at), True


def defer_kill(clock: WatchedClock, limits: DetectorLimits) -> WatchedClock:
    """Open the grace that follows a sleep of the machine."""
    return msgspec.structs.replace(clock, grace=clock.now + limits.grace)

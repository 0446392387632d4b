"""How long each class of evidence may last in a row, given what is normal for it.

The formulas combine a floor (or a prior while little is known), the body of the row's gaps (quantiles), its
recent and all-time extremes, and the longest healthy run of the same class.  They were found by simulation;
`scripts/bench detect` measures them.  This module must not judge.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection.baseline import Baseline, quantiles, recent
from stallguard.core.detection.phases import IN_STEP, LOCAL, PACED
from stallguard.core.limits import DetectorLimits, PhaseLimits

# Gaps from which a multiple may be smaller: of the median, of an extreme, of the longest wait.
_KNOWN, _WELL_KNOWN, _WAITED = 256, 512, 16


class Thresholds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Watched seconds after which each class is a stall; `silence`: without usable evidence.

    `place` and `device`: see baseline.Runs; `idle`: of idleness after which a stall is possible, though not judged yet.
    """

    deadlock: float
    external: float
    spin: float
    working: float
    silence: float
    place: float
    device: float
    idle: float


class Circumstances(msgspec.Struct, frozen=True):
    """What scales the thresholds beside the row's own history."""

    machine_slowdown: float = 1.0  # activity.machine_slowdown
    strikes: float = 1.0  # >= 1, doubled by every alarm that proved wrong
    remote: bool = False  # the job talks to other hosts
    blind: bool = False  # an accelerator is in use that cannot be read


def thresholds(name: str, base: Baseline, where: Circumstances, limits: DetectorLimits) -> Thresholds:
    """Return the thresholds of row `name` of the limits' table."""
    row: PhaseLimits = getattr(limits.rows, name.lower())
    known = base.count >= row.enough
    settled = known and not (base.unsettled and name in IN_STEP)
    learning = base.count < limits.learning_beats
    middle, high = quantiles(base, (0.5, 0.99))
    body = max((10.0 if base.count >= _KNOWN else 20.0) * middle, 5.0 * high)
    # What is known is of the old shape while a row is unsettled: its gaps can be several times as long from now on.
    multiple = 3.0 if base.count >= _WELL_KNOWN and not base.unsettled else 5.0
    usual = max(body, multiple * recent(base), 1.5 * base.longest)  # what the gaps alone call too long

    floor = row.working if settled else row.prior_working
    working = min(max(floor, usual), max(limits.cap, floor, 2.5 * base.longest)) * where.machine_slowdown
    spin = max(row.spin if settled else row.prior_spin, body, multiple * base.spin) * where.machine_slowdown
    floor = row.external if known else row.prior_external
    if known and name in LOCAL and not where.remote:
        floor *= limits.local
    external = max(floor, (3.0 if base.count >= _WAITED else 5.0) * base.external)
    deadlock = max(row.deadlock if known else row.prior_deadlock, 3.0 * base.deadlock)
    if where.remote:
        deadlock = max(deadlock, limits.remote_deadlock)
    floor = row.working if known else row.prior_working
    silence = max(limits.no_evidence if known and name in IN_STEP else floor, usual) * where.machine_slowdown

    place, device = spin, working
    if known and name in PACED:
        place = max(limits.one_place, body, multiple * base.spin) * where.machine_slowdown
        device = max(limits.busy_device, usual) * where.machine_slowdown

    # Strikes scale all classes; then a more specific class never takes longer than a less specific one.
    raw = (deadlock, external, spin, working, silence, place, device)
    deadlock, external, spin, working, silence, place, device = (value * where.strikes for value in raw)
    spin, silence, external = min(spin, working), min(silence, working), min(external, working)
    place, device = min(place, spin), min(device, working)
    deadlock = min(deadlock, external)
    if learning and name in IN_STEP:
        deadlock, external = max(deadlock, limits.learning), max(external, limits.learning)
    proves_nothing = where.blind or (not learning and base.idle_share > limits.habitual_idle)
    if proves_nothing:  # idleness of a device that cannot be read, or as a habit
        deadlock = external = silence
    # A script can wait on purpose in a callback, so idleness is judged late there, but reported as early as a loop.
    idle = external * limits.suspect_share
    if known and name in PACED and not proves_nothing:
        idle = min(idle, max(limits.one_place * limits.suspect_share, usual))
    judged = (deadlock, external, spin, working, silence, place, device, idle)
    return Thresholds(*(value * limits.patience for value in judged))

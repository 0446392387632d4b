"""How long each class of evidence may last in a row, given what is normal for it.

The formulas combine a floor (or a prior while little is known), the body of the row's gaps (quantiles), its
recent and all-time extremes, and the longest healthy run of the same class.  They were found by simulation;
`scripts/bench detect` measures them.  This module must not judge.
"""

from __future__ import annotations

import msgspec

from stallguard.core.detection.baseline import Baseline, quantiles, recent
from stallguard.core.detection.phases import IN_STEP, LOCAL
from stallguard.core.limits import DetectorLimits, PhaseLimits

# Gaps from which a multiple may be smaller: of the median, of an extreme, of the longest wait.
_KNOWN, _WELL_KNOWN, _WAITED = 256, 512, 16


class Thresholds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Watched seconds after which each class is a stall; `silence`: without usable evidence."""

    deadlock: float
    external: float
    spin: float
    working: float
    silence: float


class Circumstances(msgspec.Struct, frozen=True):
    """What scales the thresholds beside the row's own history."""

    health: float = 1.0  # >= 1, how much a busy machine slows the tree
    strikes: float = 1.0  # >= 1, doubled by every alarm that proved wrong
    remote: bool = False  # the job talks to other hosts
    blind: bool = False  # an accelerator is in use that cannot be read


def thresholds(name: str, base: Baseline, where: Circumstances, limits: DetectorLimits) -> Thresholds:
    """Return the thresholds of row `name` of the limits' table."""
    row: PhaseLimits = getattr(limits.rows, name.lower())
    known = base.count >= row.enough
    settled = known and not (base.unsettled and name in IN_STEP)
    body = _body(base)
    usual = max(body, _factor(base) * recent(base), 1.5 * base.longest)  # what the gaps alone call too long
    working = _working(row.working if settled else row.prior_working, base, usual, limits) * where.health
    spins = max(row.spin if settled else row.prior_spin, body, _factor(base) * base.spin) * where.health
    external = _external(name, row, base, where, known=known, limits=limits)
    deadlock = max(_pick(row.deadlock, row.prior_deadlock, known), 3.0 * base.deadlock)
    if where.remote:
        deadlock = max(deadlock, limits.remote_deadlock)
    silence = max(_silence_floor(name, row, known=known, limits=limits), usual) * where.health
    return _ordered(name, base, where, limits, (deadlock, external, spins, working, silence))


def _ordered(
    name: str, base: Baseline, where: Circumstances, limits: DetectorLimits, raw: tuple[float, ...]
) -> Thresholds:
    """Scale, keep the classes in their order, and ignore idleness that is habitual."""
    deadlock, external, spin, working, silence = (value * where.strikes for value in raw)
    spin, silence, external = min(spin, working), min(silence, working), min(external, working)
    deadlock = min(deadlock, external)
    if name in IN_STEP and base.count < limits.learning_beats:
        deadlock, external = max(deadlock, limits.learning), max(external, limits.learning)
    if where.blind or (base.count >= limits.learning_beats and base.idle_share > limits.habitual_idle):
        deadlock = external = silence
    scaled = (value * limits.patience for value in (deadlock, external, spin, working, silence))
    return Thresholds(*scaled)


def _pick(floor: float, prior: float, known: bool) -> float:
    return floor if known else prior


def _factor(base: Baseline) -> float:
    return 3.0 if base.count >= _WELL_KNOWN else 5.0


def _body(base: Baseline) -> float:
    middle, high = quantiles(base, (0.5, 0.99))
    return max((10.0 if base.count >= _KNOWN else 20.0) * middle, 5.0 * high)


def _working(floor: float, base: Baseline, usual: float, limits: DetectorLimits) -> float:
    return min(max(floor, usual), max(limits.cap, floor, 2.5 * base.longest))


def _external(
    name: str, row: PhaseLimits, base: Baseline, where: Circumstances, *, known: bool, limits: DetectorLimits
) -> float:
    floor = _pick(row.external, row.prior_external, known)
    if known and name in LOCAL and not where.remote:
        floor *= limits.local
    return max(floor, (3.0 if base.count >= _WAITED else 5.0) * base.external)


def _silence_floor(name: str, row: PhaseLimits, *, known: bool, limits: DetectorLimits) -> float:
    if known and name in IN_STEP:
        return limits.no_evidence
    return _pick(row.working, row.prior_working, known)

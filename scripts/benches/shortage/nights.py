"""Simulated nights: the footprint of a training and what other programs take, as a machine's sensors read them.

A night is a sum of parts, each drawn at random.  The healthy parts are those that look like a leak for a while: caches
that fill, shuffle buffers, logs that grow, allocators that settle, garbage that waits, peaks of validations and of long
batches, copies for checkpoints.  A leaking night has one of SHAPES in addition.

Memory is used up where the footprint and the other programs need all of the machine's memory.  None of the amounts is
measured; they are ranges in which trainings of users lie (0.2 to 0.9 of 8 to 128 GB).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

Floats = np.typing.NDArray[np.float64]

EVERY = 5.0  # seconds between two readings, as in a calm run
HOURS = 8.0
MACHINES = (8, 16, 24, 32, 64, 96, 128)  # GB
FREE = 0.07  # of the machine, that a healthy training leaves at its highest
SHAPES = ("linear", "epoch-stepped", "validation", "fragmenting", "big batch")
LEAST, MOST = 0.25, 6.0  # hours until a leak has used up the memory


class Clock(NamedTuple):
    """The times of the readings and the length of an epoch, in seconds."""

    times: Floats
    epoch: float


class Night(NamedTuple):
    """What is read every EVERY seconds, in bytes.  `epochs`: the epoch at each reading, -1 if the loop has none.

    `over`: index of the reading at which no memory is left; None in a healthy night.
    """

    footprint: Floats
    others: Floats
    total: float
    epochs: np.typing.NDArray[np.int64]
    over: int | None
    parts: tuple[str, ...]


def healthy(rng: np.random.Generator, hours: float = HOURS) -> Night:
    total, others, epochs, times, epoch = _machine(rng, hours)
    room = total - others
    makers = {
        "cache": _cache, "caches of folds": _folds, "shuffle buffer": _shuffle, "log": _log, "allocator": _settling,
        "garbage": _garbage, "validation peaks": _peaks, "long batches": _long_batches, "checkpoints": _copies,
    }  # fmt: skip
    chosen = tuple(name for name in makers if rng.random() < 0.4)
    use = np.full(len(times), rng.uniform(0.1, 0.5))
    for name in chosen:
        use = use + rng.uniform(0.05, 0.5) * makers[name](rng, Clock(times, epoch))
    use *= 1.0 + 0.003 * rng.standard_normal(len(times))
    # Its highest footprint fits beside what other programs take at most, with some to spare.  A night in which it does
    # not is one in which memory nearly ran out: whether it is healthy is luck.
    tight = rng.uniform(0.3, 1.0 - FREE) * float(room.min() / use.max())
    return Night(use * tight, others, total, epochs, None, chosen)


def leaking(rng: np.random.Generator, shape: str, hours: float = HOURS) -> Night:
    """Return a night with a leak of a shape, on a training that is otherwise as any other."""
    total, others, epochs, times, _ = _machine(rng, hours)
    room = total - others
    base = float(rng.uniform(0.2, 0.6) * room.min())
    ends = float(np.exp(rng.uniform(np.log(LEAST), np.log(MOST))) * 3600)
    grown = _leak(rng, shape, times, ends)
    rate = (float(room[min(len(times) - 1, int(ends / EVERY))]) - base) / max(
        1e-9, float(np.interp(ends, times, grown))
    )
    use = base * (1.0 + 0.003 * rng.standard_normal(len(times))) + rate * grown
    full = np.flatnonzero(use >= room)
    return Night(use, others, total, epochs, int(full[0]) if len(full) else None, (shape,))


def _machine(
    rng: np.random.Generator, hours: float
) -> tuple[float, Floats, np.typing.NDArray[np.int64], Floats, float]:
    """Return the memory, what other programs take of it, the epoch at each time, the times, an epoch's seconds."""
    times = np.arange(0.0, hours * 3600, EVERY)
    total = float(rng.choice(MACHINES)) * 1e9
    share = np.full(len(times), rng.uniform(0.15, 0.4))
    for _ in range(rng.poisson(hours / 3)):  # a browser, an update, a backup
        begin, lasts = rng.uniform(0, times[-1]), rng.exponential(1200.0)
        ramp = np.clip((times - begin) / rng.uniform(10, 300), 0, 1) * np.clip((begin + lasts - times) / 60 + 1, 0, 1)
        share += rng.uniform(0.02, 0.2) * ramp
    epoch = float(np.exp(rng.uniform(np.log(60), np.log(7200))))
    counted = (times / epoch).astype(np.int64) if rng.random() < 0.85 else np.full(len(times), -1)
    return total, np.minimum(share, 0.6) * total, counted, times, epoch


# ---- healthy parts, each 0 to 1 -----------------------------------------------------------------------------------


def _cache(rng: np.random.Generator, clock: Clock) -> Floats:
    """A data set's cache(): it fills in the first epoch, evenly or not."""
    return np.asarray(np.clip(clock.times / clock.epoch, 0, 1) ** rng.uniform(0.7, 1.3))


def _folds(rng: np.random.Generator, clock: Clock) -> Floats:
    """One cache a fit: each fills in the first epoch of its fit, after the one before it is freed."""
    return np.asarray(np.clip((clock.times / clock.epoch) % rng.integers(3, 12), 0, 1))


def _shuffle(rng: np.random.Generator, clock: Clock) -> Floats:
    """A shuffle buffer: it fills anew in each epoch."""
    return np.asarray(np.clip((clock.times % clock.epoch) / (clock.epoch * rng.uniform(0.05, 0.9)), 0, 1))


def _log(rng: np.random.Generator, clock: Clock) -> Floats:
    """Lists of losses and metrics: up to 100 MB in a night on the smallest machine."""
    return np.asarray(clock.times / clock.times[-1] * rng.uniform(0.001, 0.02))


def _settling(rng: np.random.Generator, clock: Clock) -> Floats:
    """An allocator whose arenas settle: quickly at first, then hardly at all."""
    slow = rng.uniform(30, 1800)
    return np.asarray(np.log1p(clock.times / slow) / np.log1p(clock.times[-1] / slow) * rng.uniform(0.1, 0.5))


def _garbage(rng: np.random.Generator, clock: Clock) -> Floats:
    """Cycles that wait for their collection: a saw tooth of uneven teeth."""
    teeth = np.cumsum(rng.uniform(0.5, 1.5, len(clock.times)))
    length = rng.uniform(20, 600)
    tooth = (teeth // length).astype(int)
    height = rng.uniform(0.7, 1.0, tooth[-1] + 1)[tooth]
    return np.asarray((teeth % length) / length * height * rng.uniform(0.1, 0.6))


def _peaks(rng: np.random.Generator, clock: Clock) -> Floats:
    """Validations at the end of each epoch that take memory and give it back."""
    number = (clock.times // clock.epoch).astype(int)
    height = rng.uniform(0.85, 1.0, number[-1] + 1)[number]
    return np.asarray(np.where((clock.times % clock.epoch) / clock.epoch > 0.93, height, 0.0))


def _long_batches(rng: np.random.Generator, clock: Clock) -> Floats:
    """Batches of varying length: each reading meets another one, and new highest ones become rare."""
    sizes = np.minimum(np.exp(rng.uniform(0.1, 0.4) * rng.standard_normal(len(clock.times))), 3.0)
    return np.asarray(sizes / 3.0)


def _copies(rng: np.random.Generator, clock: Clock) -> Floats:
    """Copies for a checkpoint every five minutes."""
    return np.asarray(np.where(clock.times % 300.0 < rng.uniform(2, 15), 0.5, 0.0))


# ---- leaks ---------------------------------------------------------------------------------------------------------


def _leak(rng: np.random.Generator, shape: str, times: Floats, ends: float) -> Floats:
    """Return how much has leaked, 0 to about 1 at `ends`."""
    even = times / ends
    step = ends / rng.uniform(4, 30)  # seconds between two steps of a stepped leak
    match shape:
        case "linear":
            return np.asarray(even)
        case "epoch-stepped":  # a model, or a graph, that is built again and not freed
            return np.asarray(np.floor(times / step) * step / ends)
        case "validation":  # predictions that are kept, a larger part at once
            wide = ends / rng.uniform(4, 8)
            return np.asarray(np.floor(times / wide) * wide / ends)
        case "fragmenting":  # uneven amounts at uneven times
            hits = rng.random(len(times)) < EVERY / (ends / 60)
            amounts = np.where(hits, rng.gamma(2.0, 1.0, len(times)), 0.0)
            total = np.cumsum(amounts)
            return np.asarray(total / max(1e-9, float(np.interp(ends, times, total))))
        case _:  # big batch: longer and longer sequences; between the large steps the footprint is as before
            large = rng.random(len(times)) < 0.5
            return np.asarray(np.where(large, even, 0.1 * even))

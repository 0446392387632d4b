"""Trainings on a GPU through the whole detector, with what the GPU reads: healthy for minutes in one line, and hung.

An episode is a training with a pace, then one event.  Its figures are drawn around what an NVIDIA H200 showed
(tests/recordings); where they do not matter they are unknown as often as not, as on a Mac.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from tests.simulation.alone import LIMITS, Alone
from tests.simulation.program import OWN, Rates

from detection.plans import Rng, between, chance
from stallguard.core.detection import detector
from stallguard.core.events import ProbeConnected
from stallguard.core.readings import Device

VISITS = 45  # of a phase before the event: more than any row needs
STEPS = 40  # batches before it
SICK_FOR = 130  # seconds
WATTS = 700.0  # the limit
VALUE, LIBRARY, CALL = ("device", 0), ("library", 0), ("call", 0)


class Event(NamedTuple):
    """What happens.  `reads`: the device, so many seconds into it; `goes_on`: the thread is seen to run Python."""

    seconds: float
    reads: Callable[[float], Device | None]
    phase: str = "between"
    frame: tuple[str, int] = VALUE
    rates: Callable[[float], Rates] = lambda _: Rates(cores=1.0, census=OWN)
    goes_on: bool = False
    library: str = "torch"
    batch: float = 0.2


class Outcome(NamedTuple):
    """Seconds until the event was noticed, called a stall and acted upon; infinity: never."""

    kind: str
    noticed: float
    judged: float
    acted: float


def _works(rng: Rng) -> Device:
    return Device(
        used_by_run=True, moved=True, utilisation=rng.uniform(0.3, 1.0), power=WATTS * rng.uniform(0.2, 0.9),
        power_limit=WATTS, memory_utilisation=rng.uniform(0.08, 0.8), others=0,
    )  # fmt: skip


def _rests(rng: Rng, *, busy: bool) -> Device:
    share = rng.uniform(0.1, 0.27)
    one = replace(_works(rng), moved=busy, utilisation=float(busy), power=WATTS * share)
    return replace(one, memory_utilisation=float(rng.choice([0.0, 0.01, 0.03])))


def _half_known(rng: Rng, one: Device) -> Device:
    return replace(one, memory_utilisation=None, power=None, others=None) if chance(rng, 0.5) else one


def _kernel_on_purpose(rng: Rng) -> Event:
    one = _half_known(rng, _rests(rng, busy=True))
    return Event(rng.uniform(3, 20), lambda _: one, str(rng.choice(["step", "between", "validation", "tracing"])))


def _evaluation(rng: Rng) -> Event:
    one = _half_known(rng, _rests(rng, busy=True) if chance(rng, 0.5) else _works(rng))
    return Event(between(rng, 30, 600), lambda _: one, goes_on=True)


def _evaluation_in_a_thread(rng: Rng) -> Event:
    one = _works(rng)
    return Event(between(rng, 30, 600), lambda _: one)


def _slow_by_others(rng: Rng) -> Event:
    """A step that other programs make several times as long."""
    one, batch = replace(_works(rng), others=int(rng.integers(1, 4))), between(rng, 0.5, 20)
    return Event(batch * rng.uniform(2, 8), lambda _: one, "step", batch=batch)


def _long_step_beside_others(rng: Rng) -> Event:
    one, every = replace(_works(rng), others=1), rng.uniform(4, 18)
    share = rng.uniform(0.4, 0.75)
    return Event(
        between(rng, 30, 280),
        lambda at: replace(one, power=WATTS * (0.9 if int(at / every) % 2 else share)), "step",
    )  # fmt: skip


def _compilation(rng: Rng) -> Event:
    idle, faults, quiet = _rests(rng, busy=False), between(rng, 300, 8000), rng.uniform(0, 20)
    cores = rng.uniform(1, 8)
    return Event(
        between(rng, 20, 280), lambda _: idle, "step", LIBRARY,
        lambda at: Rates(cores=cores, faults=faults if at % 60 > quiet else 0.0, census=OWN),
        library=str(rng.choice(["torch", "jax"])),
    )  # fmt: skip


def _one_call_of_the_processor(rng: Rng) -> Event:
    idle = _rests(rng, busy=False)
    return Event(between(rng, 10, 110), lambda _: idle, frame=LIBRARY if chance(rng, 0.5) else CALL)


def _host_function(rng: Rng) -> Event:
    """The device waits for a function of the script that another thread runs, and that waits for a while."""
    idle = _rests(rng, busy=False)
    return Event(between(rng, 5, 110), lambda _: idle, frame=("device", 1))


def _first_batch(rng: Rng) -> Event:
    one = _works(rng)
    return Event(between(rng, 10, 280), lambda _: one, "tracing")


def _unreadable(rng: Rng) -> Event:
    one = replace(_works(rng), utilisation=None, moved=None) if chance(rng, 0.5) else None
    cores = float(rng.choice([0.0, 1.0]))
    return Event(between(rng, 20, 280), lambda _: one, "step", rates=lambda _: Rates(cores=cores, census=OWN))


HEALTHY: dict[str, Callable[[Rng], Event]] = {
    "a kernel of 20 s": _kernel_on_purpose, "an evaluation that reads values": _evaluation,
    "the same in a thread": _evaluation_in_a_thread, "a step slowed by other programs": _slow_by_others,
    "a long step beside them": _long_step_beside_others, "compiling, tuning": _compilation,
    "one call that computes on the host": _one_call_of_the_processor, "a host function that waits": _host_function,
    "a first batch": _first_batch, "a GPU that cannot be read": _unreadable,
}  # fmt: skip


def _hung(rng: Rng, phase: str) -> Event:
    one, cores = _rests(rng, busy=True), float(rng.choice([0.0, 1.0]))
    return Event(SICK_FOR, lambda _: one, phase, rates=lambda _: Rates(cores=cores, census=OWN))


def _hung_beside_others(rng: Rng) -> Event:
    one, every = _rests(rng, busy=True), rng.uniform(5, 40)
    return Event(
        SICK_FOR,
        lambda at: replace(one, others=int(at / every) % 2, power=WATTS * (0.27 if int(at / every) % 2 else 0.16)),
    )  # fmt: skip


def _idle(rng: Rng, phase: str, frame: tuple[str, int]) -> Event:
    one = _rests(rng, busy=False)
    return Event(SICK_FOR, lambda _: one, phase, frame)


SICK: dict[str, Callable[[Rng], Event]] = {
    "hung in a step": lambda rng: _hung(rng, "step"), "hung in a callback": lambda rng: _hung(rng, "between"),
    "hung in a validation": lambda rng: _hung(rng, "validation"),
    "hung in a save": lambda rng: _hung(rng, "checkpoint"),
    "hung in the first batch": lambda rng: _hung(rng, "tracing"), "hung beside others": _hung_beside_others,
    "idle in a step": lambda rng: _idle(rng, "step", VALUE),
    "idle in a callback": lambda rng: _idle(rng, "between", VALUE),
    "idle, a launch waits": lambda rng: _idle(rng, "step", LIBRARY),
}  # fmt: skip


def _trained(event: Event, rng: Rng) -> Alone:
    """Return a training that has come to the event."""
    scene = Alone(batch=event.batch).tell(ProbeConnected, attempt=1, pid=7, armed=True, versions={event.library: "1"})
    scene.system.device = _works(rng)
    if event.phase == "tracing":
        return scene.enter("tracing")
    scene.train(max(20.0, STEPS * event.batch))
    if event.phase == "step":
        return scene.train(event.batch)
    for _ in range(VISITS):
        _ended(scene.enter(event.phase).silent(0.5, "spin"), event.phase).train(1)
    scene.enter(event.phase)
    return _ended(scene, event.phase) if event.phase == "validation" else scene


def _ended(scene: Alone, phase: str) -> Alone:
    then = phase if phase == "validation" else "step"
    return scene.progress(phase=then, longest=0.5, longest_phase=phase, checks=scene.heartbeat.checks + 1)


def _play(drawn: tuple[int, str, int]) -> Outcome:
    seed, kind, number = drawn
    rng = np.random.default_rng([seed, sum(kind.encode()), number])
    event = (HEALTHY | SICK)[kind](rng)
    scene = _trained(event, rng)
    began = scene.detector_state.began_at
    first = dict.fromkeys(("suspect", "stalled", "acted"), np.inf)
    while scene.now - began < event.seconds:
        at = scene.now - began
        scene.system.device, scene.training.stuck_rates = event.reads(at), event.rates(at)
        if event.goes_on:
            scene.training.record = replace(scene.heartbeat, wait_at=scene.now)
        scene.silent(1.0, frame=event.frame)
        step, due = scene.detector_state.judgement.step, detector.act_at(scene.detector_state, LIMITS)
        first[step] = min(first.get(step, np.inf), scene.now - began)
        if due is not None and due <= scene.now:
            first["acted"] = min(first["acted"], scene.now - began)
    return Outcome(kind, min(first["suspect"], first["stalled"]), first["stalled"], first["acted"])


def played(healthy: int, sick: int, seed: int, processes: int) -> list[Outcome]:
    """Return the outcomes of about so many healthy episodes, and of `sick` of each sick kind."""
    each = max(1, healthy // len(HEALTHY))
    drawn = [(seed, kind, number) for kind in HEALTHY for number in range(each)]
    drawn += [(seed, kind, number) for kind in SICK for number in range(sick)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return pool.map(_play, drawn, chunksize=4)

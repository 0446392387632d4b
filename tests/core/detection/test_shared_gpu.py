"""Other programs on a Mac's GPU: their use never counts as the training's, and a stall is found as soon as alone.

The product of what ioreg shows, what the training computes on, what others use, and what it does where.  The oracle is
the same training on a Mac on which no other program uses the GPU; where nothing shows whose work it is, that is said.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from typing import NamedTuple

import pytest

from stallguard.core import messages
from stallguard.core.events import Launched, ProbeConnected
from stallguard.core.limits import DetectorLimits
from tests import examples
from tests.simulation.mac_gpu import MacGpu, TrainingOnMac
from tests.simulation.program import Rates

PATIENCE = 0.25  # thresholds are a quarter as long
LIMITS = DetectorLimits(patience=PATIENCE)
UNKNOWN = ("shared device", "busy device")  # evidence whose words say that it is not known for whom the GPU works
SLACK = 5.0  # seconds: two readings of the GPU
PHASES = ("importing", "tracing", "step", "validation", "checkpoint", "finishing", "idle")
# How it is silent: (cores, the frame of its thread).
SICK = {
    "waits": (0.0, ("", -1)), "waits for the device": (0.0, ("device", 0)),
    "spins": (1.0, ("place", 0)), "spins for the device": (1.0, ("device", 0)),
}  # fmt: skip
# Seconds that a healthy silence lasts in each phase, if the thresholds were whole.
SLOW = {"importing": 1700, "tracing": 800, "step": 280, "validation": 280, "checkpoint": 280, "finishing": 280,
        "idle": 1700}  # fmt: skip


class Cell(NamedTuple):
    census: str  # what ioreg shows of the clients (MacGpu)
    training: str  # "metal"; "cpu"; "holds": on the CPU, with a client that does nothing
    others: float  # share of the time
    phase: str
    how: str  # of SICK; "slow": it works


def cells() -> list[Cell]:
    every = itertools.product(
        ("readable", "unreadable", "ours", "none"), ("metal", "cpu", "holds"), (0.0, 0.05, 0.5, 1.0), PHASES,
        (*SICK, "slow"),
    )  # fmt: skip
    return [Cell(*one) for one in every if one[1] != "cpu" or ("device" not in one[4] and one[0] != "ours")]


class Seen(NamedTuple):
    seconds: float  # until the verdict
    evidence: str


@functools.cache
def play(cell: Cell) -> Seen:
    """Play a training that is silent in the phase of the cell."""
    scene = TrainingOnMac(MacGpu(cell.census, cell.others, holds=cell.training != "cpu"), LIMITS)
    metal = cell.training == "metal"
    if cell.phase not in ("importing", "tracing"):
        scene.trains(60, on_gpu=metal)
        for _ in range(3 if cell.phase in ("validation", "checkpoint") else 0):
            scene.enter(cell.phase).silent(0.5, "spin")
            after = cell.phase if cell.phase == "validation" else "step"
            scene.progress(phase=after, longest=0.5, longest_phase=cell.phase, checks=scene.heartbeat.checks + 1)
            scene.trains(1, on_gpu=metal)
    if cell.phase != "step":
        scene.enter(cell.phase)
    if cell.phase == "validation":
        scene.progress(phase=cell.phase, longest=0.1, longest_phase=cell.phase, checks=scene.heartbeat.checks + 1)
    if cell.how == "slow":
        scene.gpu.computes = metal and cell.phase in ("tracing", "step", "validation", "idle")
        rates = Rates(cores=0.0) if scene.gpu.computes else Rates(cores=1.0, faults=5000.0)
        frame, longest = ("", -1), SLOW[cell.phase] * PATIENCE
    else:
        cores, frame = SICK[cell.how]
        rates, longest = Rates(cores=cores), 2000.0 * PATIENCE
    scene.be(stuck=True, stuck_rates=rates, frame=frame)
    began = scene.now
    while scene.now - began < longest:
        scene.go_on(0.5 if scene.now - began < 40.0 else 1.0)
        if scene.detector_state.judgement.step == "stalled":
            return Seen(scene.now - began, scene.detector_state.judgement.evidence)
    return Seen(math.inf, scene.detector_state.judgement.evidence)


def wrong(cell: Cell) -> str:
    """Return what is wrong; empty if nothing is."""
    seen = play(cell)
    if cell.how == "slow":
        return "" if seen.seconds == math.inf else f"healthy, judged after {seen.seconds:.0f} s: {seen.evidence}"
    alone = play(cell._replace(census="readable", others=0.0))
    said = UNKNOWN if cell.census != "readable" else ()
    if seen.evidence in said and seen.seconds >= alone.seconds - SLACK:
        return ""
    own = [alone, play(cell._replace(others=0.0))]  # what ioreg does not show is not known without others either
    as_alone = any(seen.seconds == one.seconds or abs(seen.seconds - one.seconds) <= SLACK for one in own)
    return "" if as_alone else f"{seen}, alone {alone}"


@pytest.mark.costly
def test_a_stall_is_found_as_soon_as_on_a_mac_of_its_own_or_the_gpu_is_said_to_work_for_an_unknown_program() -> None:
    chosen = random.Random(5).sample(cells(), examples.of(60, fast=20))
    assert {cell: why for cell in chosen if (why := wrong(cell))} == {}


@pytest.mark.parametrize("training", ["cpu", "holds", "metal"])
@pytest.mark.parametrize("others", [0.05, 1.0])
def test_an_idle_wait_in_a_step_beside_other_programs_on_the_gpu_is_found_in_its_own_time(
    training: str, others: float
) -> None:
    seen = play(Cell("readable", training, others, "step", "waits"))
    assert seen.evidence == "external wait"
    assert seen.seconds <= 31 * PATIENCE


def test_it_is_said_that_nothing_shows_for_whom_the_gpu_works() -> None:
    seen = play(Cell("unreadable", "holds", 0.5, "step", "waits"))
    assert "nothing shows whether for this training" in messages.DOING[seen.evidence]


@pytest.mark.parametrize(("library", "evidence"), [("tensorflow", "external wait"), ("torch", "shared device")])
def test_a_training_from_which_a_remedy_hides_the_gpu_is_judged_as_one_on_the_processor(
    library: str, evidence: str
) -> None:
    """Nothing hides a Mac's GPU from PyTorch."""
    scene = TrainingOnMac(MacGpu("unreadable", 0.5, holds=False), LIMITS)
    scene.tell(Launched, attempt=1, pid=7, device="cpu").tell(
        ProbeConnected, attempt=1, pid=7, armed=True, versions={library: "2"}
    )
    scene.trains(60, on_gpu=False).be(stuck=True, stuck_rates=Rates(cores=0.0))
    scene.go_on(20)
    assert scene.detector_state.judgement.evidence == evidence

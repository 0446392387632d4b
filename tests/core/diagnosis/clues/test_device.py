"""Clues from what the device did: each holds of readings that show it, and of none that leave it open."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from stallguard.core.diagnosis import causes
from stallguard.core.diagnosis.clues import Clue, Scene, device
from stallguard.core.events import Sampled
from stallguard.core.history import History, remember
from stallguard.core.readings import Device
from stallguard.core.verdicts import Finding, Judgement
from tests.core.scenarios import darwin, linux

SPINS = replace(linux.TRAINS, utilisation=1.0, power=118.0, memory_utilisation=0.0, sm_activity=0.008)


def said(clue: Clue, *readings: Device, step: str = "suspect") -> str | None:
    """Return the sentence of a clue in a gap of 60 s, in which the last of these readings held."""
    history = History()
    at = 0.0
    for reading, _ in pairwise([*readings, None]):
        history, at = remember(history, Sampled(at=at, reading=reading or Device())), at + 10.0
    return clue.ask(Scene(history, Judgement(step=step, since=at - 15.0, gap=60.0), at))


def test_a_busy_device_at_rest_is_said_with_its_numbers() -> None:
    assert said(device.gpu_rests, linux.TRAINS, SPINS) == (
        "the GPU reports 100 % busy, but its memory rests (0 %), 1 % of its multiprocessors have work and it draws "
        "118 of 700 W"
    )
    assert said(device.gpu_rests, replace(SPINS, sm_activity=None, power_limit=None)) == (
        "the GPU reports 100 % busy, but its memory rests (0 %)"
    )


@pytest.mark.parametrize(
    "more",
    [{"memory_utilisation": 0.4}, {"sm_activity": 0.6}, {"power": 400.0}, {"utilisation": 0.1}, {"utilisation": None},
     {"memory_utilisation": None, "sm_activity": None, "power_limit": None}, {"used_by_run": False}],
    ids=str,
)  # fmt: skip
def test_a_device_of_which_one_figure_shows_work_or_none_is_known_does_not_rest(more: dict[str, object]) -> None:
    assert said(device.gpu_rests, replace(SPINS, **more)) is None


def test_a_device_works_if_its_memory_or_its_power_shows_it() -> None:
    assert said(device.gpu_works, linux.TRAINS) == "the GPU works: its memory is read or written 30 % of the time"
    computes = replace(linux.TRAINS, memory_utilisation=0.01, power=600.0)
    assert said(device.gpu_works, computes) == "the GPU works: it draws 600 of 700 W"
    assert said(device.gpu_works, SPINS) is None
    assert said(device.gpu_works, replace(linux.TRAINS, memory_utilisation=None, power_limit=None)) is None


def test_a_device_is_taken_only_if_others_are_on_it_and_this_run_gets_little() -> None:
    shared = replace(linux.TRAINS, utilisation=1.0, others=2, compute=0.3)
    assert said(device.gpu_taken, shared) == "the GPU works for 2 other programs"
    assert said(device.gpu_taken, replace(shared, compute=None, moved=False)) is not None
    for more in ({"compute": 0.9}, {"others": 0}, {"others": None}, {"utilisation": 0.2}, {"compute": None}):
        assert said(device.gpu_taken, replace(shared, **more)) is None, more


def test_a_device_is_slowed_by_heat_or_a_low_clock_and_not_by_its_power_limit() -> None:
    hot = replace(linux.TRAINS, clock=1500, slowed_by=("heat",))
    assert said(device.gpu_slowed, hot) == "the GPU runs at 1500 of 1980 MHz, kept low by heat"
    assert said(device.gpu_slowed, replace(hot, clock=345, slowed_by=())) == "the GPU runs at 345 of 1980 MHz"
    assert said(device.gpu_slowed, replace(hot, slowed_by=("power",))) is None
    assert said(device.gpu_slowed, replace(hot, clock=345, utilisation=0.0)) is None  # idle: it needs no clock


def test_errors_count_from_the_last_reading_before_the_gap() -> None:
    error = replace(linux.TRAINS, xid=79, xid_count=1, ecc_errors=2)
    assert said(device.gpu_xid, linux.TRAINS, error) == (
        "the GPU reported 1 critical error, the newest Xid 79 (it fell off the bus)"
    )
    assert said(device.gpu_memory_errors, linux.TRAINS, error) == "2 errors of the GPU's memory could not be corrected"
    assert said(device.gpu_xid, error, error) is None
    assert said(device.gpu_memory_errors, error, error) is None
    assert said(device.gpu_xid, linux.TRAINS, replace(error, used_by_run=False)) is None


@pytest.mark.parametrize("number", device.OF_PROGRAMS)
def test_an_error_that_a_program_makes_is_no_clue_if_another_program_can_have_made_it(number: int) -> None:
    error = replace(linux.TRAINS, xid=number, xid_count=1)
    assert said(device.gpu_xid, linux.TRAINS, replace(error, others=0)) is not None
    for others in (1, None):
        assert said(device.gpu_xid, linux.TRAINS, replace(error, others=others)) is None
        fell = replace(error, xid=device.OFF_THE_BUS, others=others)
        assert said(device.gpu_xid, linux.TRAINS, fell) is not None


def test_a_lost_device_is_said() -> None:
    assert said(device.gpu_lost, Device(lost=2)) == "the driver has lost 2 GPUs: off the bus, or to be restarted"
    assert said(device.gpu_lost, Device(lost=0)) is None
    assert said(device.gpu_lost, Device()) is None


def _device_wait(*found: Finding) -> Finding:
    return next(one for one in found if one.cause == causes.DEVICE_WAIT)


def test_a_busy_device_that_rests_makes_the_wait_for_it_surer_and_one_that_works_less_sure() -> None:
    rests = _device_wait(*linux.kernel_without_end().findings())
    works = linux.cuda(cores=1.0, device_others=1).silent(100, frame=("library", 0))  # or another program does
    unknown = linux.cuda(cores=1.0, device_memory_utilisation=None, device_power_limit=None, device_sm_activity=None)
    working, left_open = (
        _device_wait(*works.findings()),
        _device_wait(*unknown.silent(100, frame=("library", 0)).findings()),
    )
    assert rests.confidence > left_open.confidence > working.confidence
    assert any("its memory rests" in sentence for sentence in rests.evidence)
    assert any("the GPU works" in sentence for sentence in working.against)


@pytest.mark.parametrize("stacks", ["lock", "compile"])
@pytest.mark.parametrize("phase", ["between", "first run"])
def test_a_wait_for_the_device_is_neither_a_lock_nor_a_compilation(stacks: str, phase: str) -> None:
    """A blocking wait is a futex, as a lock is; the first batch counts as compiling."""
    story = linux.cuda(**linux.SPINS, cores=0.0).enter(phase)
    found = [one.cause for one in story.silent(100, frame=("device", 0)).stacks(stacks).findings()]
    assert found[0] == causes.DEVICE_WAIT
    assert not {causes.HOST_DEADLOCK, causes.COMPILING} & set(found)


def test_a_mac_has_none_of_these_figures_and_no_sentence_of_them() -> None:
    story = darwin.f1_busy_without_end()
    texts = [text for one in story.findings() for text in (*one.evidence, *one.against)]
    assert not [text for text in texts if "memory rests" in text or "draws" in text or "MHz" in text]

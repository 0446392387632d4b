"""What the device did in a stretch of time: figures of the readings that are of it, and nothing that none says."""

from __future__ import annotations

from pathlib import Path

import msgspec

from stallguard.core.device_account import DeviceAccount, Span, account, described
from stallguard.core.readings import Device
from tests.core.scenarios import recorded
from tests.sensors.test_device_recording import during

RECORDED = Path(__file__).parents[1] / "recordings" / "nvml" / "h200_keras_torch.jsonl"


def of(*readings: Device, every: float = 2.0, since: float = 0.0) -> DeviceAccount:
    made = account(((every * number, reading) for number, reading in enumerate(readings)), since, 1e9)
    assert made is not None
    return made


def test_readings_of_before_and_after_are_left_out() -> None:
    trail = [(float(at), Device(utilisation=at / 100)) for at in range(100)]
    made = account(trail, 10.0, 30.0)
    assert made is not None
    assert made.utilisation == Span(0.16, 0.23, 0.30)  # those of the first seconds show the work before the gap
    assert account(trail, 100.0, 200.0) is None


def test_a_gap_that_has_just_begun_is_told_by_the_readings_there_are() -> None:
    assert of(Device(power=100.0), Device(power=120.0)).power == Span(100.0, 110.0, 120.0)


def test_what_no_reading_says_is_unknown_and_not_shown() -> None:
    made = of(Device(utilisation=1.0), Device(utilisation=1.0))
    assert made == DeviceAccount(readings=2, seconds=2.0, utilisation=Span(1.0, 1.0, 1.0))
    assert described(made) == "100% busy"
    assert described(of(Device())) == ""


def test_a_zero_that_was_read_is_shown() -> None:
    assert described(of(Device(utilisation=0.0, memory_utilisation=0.0))) == "0% busy, its memory 0% busy"


def test_errors_are_counted_from_the_last_reading_before() -> None:
    before, after = Device(xid_count=1, xid=31, ecc_errors=7, recoveries=0), Device(xid_count=3, xid=79, ecc_errors=7)
    made = account([(0.0, before), (9.0, after), (11.0, msgspec.structs.replace(after, recoveries=1))], 5.0, 20.0)
    assert made is not None
    assert (made.xids, made.xid, made.ecc_errors, made.recoveries) == (2, 79, 0, 1)
    assert "2 critical errors, the newest Xid 79 (it fell off the bus), restarted 1 time" in described(made)


def test_a_count_that_began_again_is_no_error_and_an_old_one_is_not_of_this_time() -> None:
    made = of(Device(xid_count=4, xid=79, ecc_errors=5), Device(xid_count=0, ecc_errors=0))
    assert (made.xids, made.xid, made.ecc_errors) == (0, None, 0)
    assert described(made) == ""


def test_what_slows_the_clock_counts_if_half_of_the_readings_show_it() -> None:
    hot, cool = Device(slowed_by=("heat",)), Device(slowed_by=())
    assert of(hot, cool, Device(), hot).slowed_by == ("heat",)
    assert of(hot, cool, cool).slowed_by == ()


def test_a_process_that_came_and_went_is_no_other_program() -> None:
    assert of(*(Device(others=number) for number in (0, 1, 0, 0))).others == 0
    assert of(*(Device(others=number) for number in (1, 2, 1))).others == 1


def test_the_line_has_each_figure_with_its_limit() -> None:
    one = Device(
        utilisation=1.0, compute=0.99, memory_utilisation=0.0, sm_activity=0.008, memory=1_500_000_000, power=118.0,
        power_limit=700.0, clock=1980, clock_limit=1980, slowed_by=("power",), others=2, ecc_errors=0, lost=1,
    )  # fmt: skip
    assert described(of(one, msgspec.structs.replace(one, power=250.0, ecc_errors=1))) == (
        "100% busy, 99% by this run, its memory 0% busy, 1% of its multiprocessors at work, 1.5 GB in use, "
        "118 to 250 of 700 W, 1980 of 1980 MHz, its clock is kept low by power, 2 other programs on it, "
        "1 memory error that could not be corrected, 1 device lost by the driver"
    )


def test_a_recorded_device_that_spins_differs_from_one_that_works() -> None:
    assert described(of(*during(RECORDED, "spin"))) == "100% busy, 2.03 GB in use, 122 W"
    assert described(of(*during(RECORDED, "train"))) == "36% busy, 2.03 GB in use, 248 W"


def test_the_readings_of_a_mac_make_the_same_account() -> None:
    made = of(recorded.gpu("ioreg_ioaccelerator_g14x_41pct_trimmed.txt", recoveries=0), recorded.gpu(
        "ioreg_ioaccelerator_g14x_41pct_trimmed.txt", recoveries=1))  # fmt: skip
    assert made.utilisation == Span(0.41, 0.41, 0.41)
    assert (made.recoveries, made.memory_utilisation, made.power, made.xids) == (1, None, None, None)

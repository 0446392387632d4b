"""What a machine is set to do when nobody touches it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.host import system
from stallguard.host.darwin.machine import parse_displays, parse_sleep
from stallguard.host.linux.machine import parse_logind
from stallguard.host.types import ListedGpu, Preferences, Sleep

RECORDINGS = Path(__file__).parent.parent / "recordings/macos"


def recording(name):
    return (RECORDINGS / name).read_text()


@pytest.mark.parametrize(
    ("name", "sleep"),
    [
        ("pmset_g_sleep_prevented.txt", Sleep(60.0, ("caffeinate", "runningboardd"), low_power=False)),
        ("pmset_g_powermode.txt", Sleep(0.0, ("screensharingd",), low_power=False)),
        ("pmset_g_battery_old.txt", Sleep(600.0, (), low_power=None)),
    ],
)
def test_the_sleep_setting_in_use_is_reported_with_who_holds_it_off(name, sleep):
    assert parse_sleep(recording(name)) == sleep


def test_a_machine_whose_sleep_is_switched_off_never_sleeps():
    text = recording("pmset_g_powermode.txt").replace("SleepDisabled\t\t0", "SleepDisabled\t\t1")
    assert parse_sleep(text.replace("sleep                0", "sleep                5")).after == 0.0


def test_high_power_mode_is_not_low_power_mode():
    text = recording("pmset_g_powermode.txt")
    assert parse_sleep(text.replace("powermode            0", "powermode            2")).low_power is False
    assert parse_sleep(text.replace("powermode            0", "powermode            1")).low_power is True


def test_displaysleep_is_not_taken_for_sleep():
    assert parse_sleep("Currently in use:\n displaysleep 10\n disksleep 10\n") is None


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("system_profiler_spdisplays_m4.json", ListedGpu("Apple M4", 10)),
        ("system_profiler_spdisplays_m1_named_khw.json", ListedGpu("kHW_AppleM1Item")),
    ],
)
def test_a_gpu_is_named_by_its_model_where_there_is_one(name, gpu):
    assert parse_displays(recording(name)) == (gpu,)


def test_the_gpu_of_a_virtual_machine_is_marked():
    text = '{"SPDisplaysDataType": [{"_name": "Apple Paravirtual device"}]}'
    assert parse_displays(text)[0].virtual


@given(st.text())
def test_rubbish_is_unknown_never_an_error(text):
    assert parse_displays(text) is None
    parse_sleep(text)


@given(st.integers(0, 400))
def test_a_cut_recording_never_raises(cut):
    parse_sleep(recording("pmset_g_sleep_prevented.txt")[:cut])
    parse_displays(recording("system_profiler_spdisplays_m4.json")[:cut])


def test_logind_leaves_an_idle_machine_alone_unless_configured():
    assert parse_logind(["[Login]\n#IdleAction=suspend\n"]).after == 0.0
    assert parse_logind([]).after == 0.0


def test_a_later_file_of_logind_wins():
    first, second = "[Login]\nIdleAction=suspend\nIdleActionSec=1h 5min\n", "[Login]\nIdleActionSec=20min\n"
    assert parse_logind([first]).after == 3900.0
    assert parse_logind([first, second]).after == 1200.0
    assert parse_logind([first, "[Login]\nIdleAction=ignore\n"]).after == 0.0


def test_this_machine_answers():
    assert isinstance(system.preferences(), Preferences)

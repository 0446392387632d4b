"""What macOS' tools print: every recording that fits, and what could be printed instead."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallguard.core.text import whole_number
from stallguard.host.darwin import parsers as parse
from stallguard.host.darwin.parsers import Accelerator, Client, ProcessRow, Thermal
from stallguard.host.types import ListedGpu, Sleep
from tests import examples

RECORDINGS = Path(__file__).parents[2] / "recordings" / "macos"


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("ioreg_perfstats_m4_idle_line.txt", Accelerator(None, None, 0.0, 763723776, 0)),
        ("ioreg_ioaccelerator_m4_30pct_trimmed.txt", Accelerator("AGXAcceleratorG16G", "Apple M4", 0.3, 356089856, 0)),
        ("ioreg_ioaccelerator_g14x_41pct_trimmed.txt", Accelerator("AGXAcceleratorG14X", None, 0.41, 626458624, 0)),
        ("ioreg_perfstats_m1_2pct_trimmed.txt", Accelerator("AGXAcceleratorG13X", None, 0.02, 340983808, 0)),
    ],
)
def test_the_gpu_of_every_recording_is_read(name: str, gpu: Accelerator) -> None:
    assert parse.accelerators(recorded(name)) == [gpu]


def test_a_share_over_one_is_no_reading_and_a_missing_key_no_zero() -> None:
    text = recorded("ioreg_ioaccelerator_m4_30pct_trimmed.txt")
    wild = text.replace('Device Utilization %"=30', 'Device Utilization %"=437')
    assert parse.accelerators(wild)[0].utilisation is None
    bare = re.sub(r"\{.*\}", "{}", text)
    assert parse.accelerators(bare) == [Accelerator("AGXAcceleratorG16G", "Apple M4", None, None, None)]


def test_titles_of_channels_are_not_taken_for_values() -> None:
    text = recorded("ioreg_ioaccelerator_m4_30pct_trimmed.txt").replace(
        '"model"',
        '"IOReportLegend" = ({"IOReportChannels"=(("In use system memory"=1),"Device Utilization %"=99)})\n"model"',
    )
    assert parse.accelerators(text)[0].memory == 356089856


def test_the_drivers_own_share_of_memory_is_not_taken_for_the_whole() -> None:
    text = recorded("ioreg_perfstats_m4_idle_line.txt").replace('(driver)"=0', '(driver)"=12345')
    assert parse.accelerators(text)[0].memory == 763723776


def test_several_gpus_are_distinguished() -> None:
    text = recorded("ioreg_ioaccelerator_m4_30pct_trimmed.txt") + recorded("ioreg_ioaccelerator_g14x_41pct_trimmed.txt")
    assert [gpu.utilisation for gpu in parse.accelerators(text)] == [0.3, 0.41]


def test_who_holds_the_gpu_is_read_with_its_time_over_all_queues() -> None:
    assert parse.clients(recorded("ioreg_agxdeviceuserclient_list.txt")) == [
        Client("0x100002dbc", 444, 0, 0),
        Client("0x100002dbd", 440, 38738170958 + 76336458, 3062414094833),
        Client("0x100002dbe", 440, 1000000000, 0),
    ]


def test_memory_sysctls_are_read() -> None:
    announced = parse.sysctl(recorded("sysctl_memory_loaded_48g_18core.txt"))
    assert parse.PRESSURE[announced["kern.memorystatus_vm_pressure_level"]] == "warn"
    assert parse.swap_used(announced["vm.swapusage"]) == int(11625.69 * (1 << 20))
    assert whole_number(announced["hw.ncpu"]) == 18
    assert whole_number(announced["vm.loadavg"]) is None
    model = parse.sysctl(recorded("sysctl_hw_model_memsize_m2pro.txt"))
    assert (model["hw.model"], whole_number(model["hw.memsize"])) == ("Mac14,12", 32 << 30)
    assert parse.sysctl(recorded("sysctl_iogpu_wired_limit_default.txt")) == {"iogpu.wired_limit_mb": "0"}


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("total = 22528.00M  used = 21626.25M  free = 901.75M  (encrypted)", int(21626.25 * (1 << 20))),
        ("total = 1024,00M  used = 212,40M  free = 811,60M", int(212.4 * (1 << 20))),
        ("total = 2.00G  used = 1.50G  free = 0.50G", 3 << 29),
        ("total = 0.00M  used = 0.00M  free = 0.00M  (encrypted)", 0),
        ("used = lots", None),
        ("", None),
        (None, None),
    ],
)
def test_swap_is_read_in_any_unit_and_either_decimal_point(text: str | None, used: int | None) -> None:
    assert parse.swap_used(text) == used
    if text and text.startswith("total = 22528"):
        heavy = parse.sysctl(recorded("sysctl_vm_swapusage_heavy.txt"))
        assert parse.swap_used(heavy["vm.swapusage"]) == used


def test_vm_stat_and_memory_pressure_tell_the_same_of_the_same_mac() -> None:
    one = parse.pages(recorded("vm_stat_m_series_32g_healthy.txt"))
    two = parse.pages(recorded("memory_pressure_m_series_32g_healthy.txt"))
    assert one is not None
    assert two is not None
    assert one.size == two.size == 16384
    assert one.counts["Swapouts"] == two.counts["Swapouts"] == 16
    assert one.counts["Translation faults"] == 8304623196
    assert one.bytes("Pages free", "Pages inactive") == (652276 + 410479) * 16384
    assert abs(one.counts["Pages wired down"] - two.counts["Pages wired down"]) == 0


def test_newer_lines_do_not_disturb_and_missing_ones_are_unknown() -> None:
    pages = parse.pages(recorded("vm_stat_m_series_pressure_trimmed.txt"))
    assert pages is not None
    assert pages.counts["Pages tag-storage non-tag wired"] == 94
    assert pages.bytes("Swapouts") is None
    assert pages.bytes("Pages free", "Swapouts") is None


def test_two_notes_mean_that_all_is_cool() -> None:
    assert parse.thermal(recorded("pmset_g_therm_apple_silicon_nominal.txt")) == Thermal("nominal", None)
    assert parse.thermal(recorded("pmset_g_therm_with_cpu_power_lines.txt")) == Thermal("nominal", 1.0)


@pytest.mark.parametrize(
    ("text", "thermal"),
    [
        ("2026-08-20 05:08:37 -0700 Thermal Warning Level = 5", Thermal("serious", None)),
        ("Thermal warning level: 10\n\tCPU_Speed_Limit \t= 40", Thermal("critical", 0.4)),
        ("Thermal Warning Level = 0", Thermal("nominal", None)),
        ("", Thermal(None, None)),
    ],
)
def test_heat_is_read(text: str, thermal: Thermal) -> None:
    assert parse.thermal(text) == thermal


@pytest.mark.parametrize(
    ("text", "source", "has_battery"),
    [
        ("Now drawing from 'AC Power'\n -InternalBattery-0 (id=1)\t99%; charged", "ac", True),
        ("Now drawing from 'Battery Power'\n -InternalBattery-0\t57%; discharging", "battery", True),
        ("Now drawing from 'UPS Power'\n -Back-UPS 700\t90%; discharging", "battery", True),
        ("Now drawing from 'AC Power'", "ac", False),
        ("", None, None),
    ],
)
def test_the_power_source_is_read(text: str, source: str | None, has_battery: bool | None) -> None:
    assert (parse.power(text), parse.has_battery(text)) == (source, has_battery)


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ('  |   "AppleClamshellCausesSleep" = No\n  |   "AppleClamshellState" = Yes', True),
        ('    "AppleClamshellState" = No', False),
        ("", None),
    ],
)
def test_the_lid_is_read_where_there_is_one(text: str, closed: bool | None) -> None:
    assert parse.lid_closed(text) is closed


def test_a_table_of_processes_is_read_by_its_headings() -> None:
    rows = parse.ps(recorded("ps_hung_python_splus_0cpu.txt"))
    assert [(row.pid, row.state, row.cpu) for row in rows] == [(35146, "S+", 0), (39358, "S+", 0), (39359, "S+", 0)]
    assert rows[0].name.startswith("/Library/Frameworks/Python.framework")
    table = "  PID STAT  %CPU COMM\n  400 R    312,5 Google Chrome He\n    1 Ss     0.0 launchd\n torn\n"
    assert parse.ps(table) == [ProcessRow(400, "R", 3.125, "Google Chrome He"), ProcessRow(1, "Ss", 0.0, "launchd")]


def test_the_versions_are_read() -> None:
    text = "ProductName:\t\tmacOS\nProductVersion:\t\t26.5.1\nBuildVersion:\t\t25F80\n"
    assert parse.sysctl(text)["ProductVersion"] == "26.5.1"


PARSERS: list[Any] = [
    parse.accelerators,
    parse.clients,
    parse.sysctl,
    parse.swap_used,
    parse.pages,
    parse.thermal,
    parse.power,
    parse.lid_closed,
    parse.ps,
    parse.sleep,
    parse.wakes,
    parse.displays,
    whole_number,
]
OURS = re.compile(r"ioreg|sysctl|vm_|mem|pmset|ps|system_profiler")
TEXTS = [path.read_text() for path in sorted(RECORDINGS.iterdir()) if OURS.match(path.name)]


@st.composite
def mutilated(draw: st.DrawFn) -> str:
    """A recording with lines lost, doubled, moved, cut, or with rubbish in them."""
    lines = draw(st.permutations(draw(st.sampled_from(TEXTS)).splitlines(keepends=True)))
    kept = [line for line in lines if draw(st.booleans())]
    text = "".join(kept)
    cut = draw(st.integers(0, len(text)))
    return text[:cut] + draw(st.text(max_size=20)) + text[cut + draw(st.integers(0, 30)) :]


@settings(max_examples=examples.of(100, fast=25))
@given(mutilated())
def test_a_mutilated_recording_is_read_as_far_as_it_goes(text: str) -> None:
    for parser in PARSERS:
        parser(text)
    for gpu in parse.accelerators(text):
        assert gpu.utilisation is None or 0 <= gpu.utilisation <= 1


@given(st.permutations(recorded("vm_stat_m_series_32g_healthy.txt").splitlines()))
def test_the_order_of_lines_does_not_matter(lines: list[str]) -> None:
    assert parse.pages("\n".join(lines)) == parse.pages(recorded("vm_stat_m_series_32g_healthy.txt"))


@given(st.permutations(re.findall(r'"[^"]+"=\d+', recorded("ioreg_perfstats_m4_idle_line.txt"))))
def test_the_order_of_keys_does_not_matter(pairs: list[str]) -> None:
    text = '  "PerformanceStatistics" = {' + ",".join(pairs) + "}"
    assert parse.accelerators(text) == parse.accelerators(recorded("ioreg_perfstats_m4_idle_line.txt"))


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    for parser in PARSERS:
        parser(text)
    assert parse.displays(text) is None


MEGA = 200_000  # a parser whose time grows with the square of a text takes minutes for two megabytes
RUBBISH = {
    "letters": "x" * 10 * MEGA,
    "lines": ("a" * 999 + "\n") * (MEGA // 100),
    "statistics": '"PerformanceStatistics" = {' + '"a"=1,' * (10 * MEGA // 6),
    "digits": "9" * 10 * MEGA,
    "tree": "| " * 2 * MEGA,
    "pages": "page size of 1" * (10 * MEGA // 14),
    "counts": 'Pages free: "' * (10 * MEGA // 13),
    "swap": "used = 1" * (10 * MEGA // 8),
    "rows": "PID STAT %CPU COMM\n" + "1 S 0.0 x\n" * (MEGA // 10),
}


@pytest.mark.costly
@pytest.mark.parametrize("rubbish", RUBBISH.values(), ids=RUBBISH.keys())
def test_two_megabytes_of_rubbish_take_seconds_not_minutes(rubbish: str) -> None:
    begun = time.thread_time()
    for parser in PARSERS:
        parser(rubbish)
    assert time.thread_time() - begun < 5


@pytest.mark.parametrize(
    ("name", "sleep"),
    [
        ("pmset_g_sleep_prevented.txt", Sleep(60.0, ("caffeinate", "runningboardd"), low_power=False)),
        ("pmset_g_powermode.txt", Sleep(0.0, ("screensharingd",), low_power=False)),
        ("pmset_g_battery_old.txt", Sleep(600.0, (), low_power=None)),
    ],
)
def test_the_sleep_setting_in_use_is_reported_with_who_holds_it_off(name, sleep):
    assert parse.sleep(recorded(name)) == sleep


def test_a_machine_whose_sleep_is_switched_off_never_sleeps():
    text = recorded("pmset_g_powermode.txt").replace("SleepDisabled\t\t0", "SleepDisabled\t\t1")
    assert parse.sleep(text.replace("sleep                0", "sleep                5")).after == 0.0


def test_high_power_mode_is_not_low_power_mode():
    text = recorded("pmset_g_powermode.txt")
    assert parse.sleep(text.replace("powermode            0", "powermode            2")).low_power is False
    assert parse.sleep(text.replace("powermode            0", "powermode            1")).low_power is True


def test_displaysleep_is_not_taken_for_sleep():
    assert parse.sleep("Currently in use:\n displaysleep 10\n disksleep 10\n") is None


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("system_profiler_spdisplays_m4.json", ListedGpu("Apple M4", 10)),
        ("system_profiler_spdisplays_m1_named_khw.json", ListedGpu("kHW_AppleM1Item")),
    ],
)
def test_a_gpu_is_named_by_its_model_where_there_is_one(name, gpu):
    assert parse.displays(recorded(name)) == (gpu,)


def test_the_gpu_of_a_virtual_machine_is_marked():
    text = '{"SPDisplaysDataType": [{"_name": "Apple Paravirtual device"}]}'
    assert parse.displays(text)[0].virtual


SCHED = """Repeating power events:
  wakepoweron at 10:59PM every day
  sleep at 8:30AM every day
Scheduled power events:
 [0]  wake at 11/22/2026 04:00:00 by 'com.apple.alarm.user-visible' every day
"""


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (SCHED, ("22:59",)),
        ("Repeating power events:\n  wakepoweron at 12:05AM every day\n", ("00:05",)),
        ("Repeating power events:\n  wakepoweron at 22:59 every day\n", ("22:59",)),
        ("Repeating power events:\n  wakepoweron at 10:59PM weekdays only\n", ()),
        ("", ()),
    ],
)
def test_the_daily_wake_ups_of_pmset_are_read(text, times):
    assert parse.wakes(text) == times

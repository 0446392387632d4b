"""The machine: idle share, busy others, facts."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.host.linux import machine
from stallguard.host.linux.machine import LinuxMachineWatch, facts, parse_logind, parse_times
from tests.host.children import running

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

BURNER = """
import ctypes
ctypes.CDLL(None).prctl(15, b"burner-process", 0, 0, 0)
print(flush=True)
while True: pass
"""


@linux
def test_idle_is_unknown_at_first_and_then_a_share() -> None:
    watch = LinuxMachineWatch()
    assert watch.read(0.0, (), 0.0).idle is None
    time.sleep(0.1)
    idle = watch.read(0.1, (), 0.0).idle
    assert idle is not None
    assert 0 <= idle <= 1


@pytest.mark.costly
@linux
def test_a_busy_other_process_is_named_and_our_own_child_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TOP", 100)  # other tests may be busier
    with running(BURNER) as child:
        watch, ours = LinuxMachineWatch(), LinuxMachineWatch()
        watch.read(time.monotonic(), (), 0.0)
        ours.read(time.monotonic(), (child.pid,), 0.0)
        time.sleep(0.5)
        assert "burner-process" in watch.read(time.monotonic(), (), 0.0).busiest
        assert "burner-process" not in ours.read(time.monotonic(), (child.pid,), 0.0).busiest


@linux
def test_helpers_of_one_name_are_one_and_no_more_than_three_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    used = {1: ("a", 1.0), 2: ("b", 9.0), 3: ("b", 9.0), 4: ("c", 5.0), 5: ("d", 4.0), 6: ("e", 0.01)}
    share = [0.0]

    def stat(pid: int) -> object:
        class One:
            name, start, own_cpu = used[pid][0], 1, used[pid][1] * share[0]

        return One

    monkeypatch.setattr("stallguard.host.linux.procfs.all_pids", lambda: list(used))
    monkeypatch.setattr("stallguard.host.linux.procfs.stat", stat)
    watch = LinuxMachineWatch()
    watch.read(0.0, (), 0.0)
    share[0] = 1.0
    assert watch.read(10.0, (), 0.0).busiest == ("b", "c", "d")


def test_time_waiting_for_the_disk_is_idle_and_stolen_time_is_not() -> None:
    assert parse_times(b"cpu  100 0 50 800 40 0 5 5 0 0\ncpu0 1\n") == (840, 1000)


@given(st.binary(max_size=120))
def test_a_torn_stat_file_is_unknown(text: bytes) -> None:
    parse_times(text)


@pytest.mark.parametrize(
    ("supplies", "power"),
    [
        ({}, None),
        ({"AC": {"type": "Mains", "online": "1"}, "BAT0": {"type": "Battery", "status": "Charging"}}, "ac"),
        ({"AC": {"type": "Mains", "online": "0"}, "BAT0": {"type": "Battery", "status": "Discharging"}}, "battery"),
        ({"BAT0": {"type": "Battery", "status": "Full"}}, "ac"),
        # The battery of a mouse does not feed the machine.
        ({"hidpp_battery_0": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, None),
    ],
)
def test_the_power_source(
    supplies: dict[str, dict[str, str]], power: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"/s/{name}/{key}": value for name, keys in supplies.items() for key, value in keys.items()}
    monkeypatch.setattr("glob.glob", lambda _pattern: [f"/s/{name}" for name in supplies])
    monkeypatch.setattr(machine, "_word", lambda path: files.get(path, ""))
    assert machine._power() == power
    monkeypatch.setattr("os.path.isdir", lambda path: True)
    assert machine.has_battery() is ("BAT0" in supplies)
    monkeypatch.setattr("os.path.isdir", lambda path: False)
    assert machine.has_battery() is None


@linux
def test_facts_name_the_machine_and_admit_what_they_do_not_know() -> None:
    known = facts()
    assert known["system"] == "Linux"
    assert isinstance(known["memory"], int)
    assert known["python"] == sys.version.split()[0]
    assert known["rosetta"] is None


def test_logind_leaves_an_idle_machine_alone_unless_configured():
    assert parse_logind(["[Login]\n#IdleAction=suspend\n"]).after == 0.0
    assert parse_logind([]).after == 0.0


def test_a_later_file_of_logind_wins():
    first, second = "[Login]\nIdleAction=suspend\nIdleActionSec=1h 5min\n", "[Login]\nIdleActionSec=20min\n"
    assert parse_logind([first]).after == 3900.0
    assert parse_logind([first, second]).after == 1200.0
    assert parse_logind([first, "[Login]\nIdleAction=ignore\n"]).after == 0.0

"""Readings of a Mac from recorded words, and the two calls that need its kernel."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from stallguard.host import process_end, tool
from stallguard.host.darwin import machine, process_tree
from stallguard.host.darwin import parsers as parse
from stallguard.host.darwin.machine import AppleGpu, DarwinMachineWatch

RECORDINGS = Path(__file__).parents[2] / "recordings" / "macos"


def recorded(name: str) -> str:
    return (RECORDINGS / name).read_text()


class Mac:
    """Answers for the tools of a Mac."""

    def __init__(self) -> None:
        self.clients = recorded("ioreg_agxdeviceuserclient_list.txt")
        self.asked: list[str] = []

    def output(self, argv: list[str], _seconds: float, *, lenient: bool = False) -> str | None:
        words = " ".join(argv)
        self.asked.append(words)
        answers = {
            "IOAccelerator": recorded("ioreg_ioaccelerator_m4_30pct_trimmed.txt"),
            "AGXDeviceUserClient": self.clients,
            "AppleClamshellState": '"AppleClamshellState" = Yes',
            "vm_stat": recorded("vm_stat_m_series_32g_healthy.txt"),
            "sysctl": recorded("sysctl_memory_loaded_48g_18core.txt")
            + "hw.memsize: 51539607552\nsysctl.proc_translated: 1\n",
            "-g therm": recorded("pmset_g_therm_with_cpu_power_lines.txt"),
            "-g ps": "Now drawing from 'Battery Power'",
            "pmset -g": recorded("pmset_g_sleep_prevented.txt").replace(
                "lowpowermode         0", "lowpowermode         1"
            ),
            "/bin/ps": "PID STAT %CPU COMM\n7 R 90.0 mds\n8 R 80.0 mine\n9 R 60.0 mds\n10 R 40.0 ps\n11 S 1.0 idle\n",
            "sw_vers": "ProductVersion:\t26.5",
        }
        assert lenient == ("sysctl" in words)
        return next((answer for key, answer in answers.items() if key in words), None)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Mac:
    made = Mac()
    monkeypatch.setattr(tool, "output", made.output)
    monkeypatch.setattr(machine.libproc, "thermal_pressure", lambda: 2)
    return made


@pytest.mark.usefixtures("mac")
def test_memory_is_made_of_sysctl_and_vm_stat() -> None:
    reading = machine.memory(7)
    assert reading.total == 48 << 30
    assert reading.pressure == "warn"
    assert reading.available == (652276 + 410479 + 183582) * 16384
    assert reading.swap_outs == 16 * 16384
    assert (reading.compressed, reading.limit) == (None, None)


@pytest.mark.usefixtures("mac")
def test_a_gpu_is_there_if_the_registry_lists_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.has_gpu() is True
    monkeypatch.setattr(tool, "output", lambda *_arguments, **_named: "")
    assert machine.has_gpu() is False
    virtual = recorded("ioreg_ioaccelerator_m4_30pct_trimmed.txt").replace("AGXAcceleratorG16G", "AppleParavirtGPU")
    monkeypatch.setattr(tool, "output", lambda *_arguments, **_named: virtual)
    assert machine.has_gpu() is False, "it cannot compute"


def test_without_any_tool_all_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "output", lambda *_arguments, **_named: None)
    assert machine.memory() == machine.Memory()
    assert AppleGpu().read([7]) is None
    assert machine.has_gpu() is None
    assert machine.facts()["model"] is None


def test_gpu_time_of_ours_moves_or_stands_still(mac: Mac) -> None:
    gpu = AppleGpu()
    first = gpu.read([440])
    assert (first.name, first.utilisation, first.used_by_run, first.moved) == ("Apple M4", 0.3, True, None)
    assert gpu.read([440]).moved is False
    mac.clients = mac.clients.replace('accumulatedGPUTime"=76336458', 'accumulatedGPUTime"=76336459')
    assert gpu.read([440]).moved is True
    assert gpu.read([440]).moved is False


def test_a_client_that_closed_is_no_movement_and_a_new_one_that_submitted_is(mac: Mac) -> None:
    gpu = AppleGpu()
    whole = mac.clients
    gpu.read([440])
    mac.clients = whole[: whole.rindex("+-o")]
    assert gpu.read([440]).moved is False
    mac.clients = whole
    assert gpu.read([440]).moved is False  # it never submitted anything
    mac.clients = whole.replace('lastSubmittedTime"=0', 'lastSubmittedTime"=5')
    assert gpu.read([440]).moved is True


def test_work_of_ours_that_is_not_counted_is_unknown_and_no_rest(mac: Mac) -> None:
    mac.clients = mac.clients.replace('"AppUsage" = ({"API"="Metal","lastSubmittedTime"=3', '"Other" = ({"API"="M"=3')
    gpu = AppleGpu()
    gpu.read([440])
    assert gpu.read([440]).moved is None
    mac.clients = mac.clients.replace('lastSubmittedTime"=0', 'lastSubmittedTime"=5')
    assert gpu.read([440]).moved is True


def test_others_are_the_programs_that_computed_and_not_those_that_only_hold_the_gpu(mac: Mac) -> None:
    gpu = AppleGpu()
    assert gpu.read([7]).others is None  # one look cannot show movement
    assert gpu.read([7]).others == 0
    mac.clients = mac.clients.replace('accumulatedGPUTime"=76336458', 'accumulatedGPUTime"=76336459')
    mac.clients = mac.clients.replace('lastSubmittedTime"=0', 'lastSubmittedTime"=5')
    reading = gpu.read([7])  # both clients are of one process
    assert (reading.others, reading.used_by_run, reading.moved) == (1, False, None)
    mac.clients = mac.clients.replace('accumulatedGPUTime"=76336459', 'accumulatedGPUTime"=76336460')
    assert gpu.read([444], family=[440]).others == 0
    mac.clients = ""
    assert gpu.read([7]).others is None


def test_the_work_of_others_is_a_share_of_the_time_and_what_is_not_shown_is_not_known(mac: Mac) -> None:
    gpu = AppleGpu(iter(range(0, 100, 2)).__next__)
    assert gpu.read([7]).others_compute is None
    assert gpu.read([7]).others_compute == 0.0
    mac.clients = mac.clients.replace('accumulatedGPUTime"=76336458', 'accumulatedGPUTime"=1076336458')
    assert gpu.read([7]).others_compute == 0.5
    mac.clients = mac.clients.replace('accumulatedGPUTime"=1076336458', 'accumulatedGPUTime"=2076336458')
    assert gpu.read([440]).others_compute == 0.0  # that was ours
    mac.clients = mac.clients.replace("AppUsage", "Other")
    reading = gpu.read([7])
    assert (reading.others, reading.others_compute) == (None, 0.0)  # the least that they computed


@pytest.mark.usefixtures("mac")
def test_the_power_of_a_macs_gpu_and_the_load_of_its_memory_are_unknown_and_not_zero() -> None:
    reading = AppleGpu().read([440])
    assert (reading.power, reading.power_limit, reading.memory_utilisation) == (None, None, None)


@pytest.mark.usefixtures("mac")
def test_a_process_without_a_client_is_not_on_the_gpu() -> None:
    reading = AppleGpu().read([12345])
    assert (reading.used_by_run, reading.moved) == (False, None)


def test_apples_own_gpu_is_reported_where_there_are_several() -> None:
    gpus = [
        parse.Accelerator("AppleParavirtGPU", "virtual", 0.9, 1, None),
        parse.Accelerator("AGXAcceleratorG16G", "Apple M4", 0.1, 2, 3),
    ]
    reading = AppleGpu().reading(gpus, [], [7])
    assert (reading.name, reading.recoveries, reading.used_by_run) == ("Apple M4", 3, None)


def test_the_machine_is_read_and_what_changes_rarely_is_asked_rarely(mac: Mac) -> None:
    watch = DarwinMachineWatch()
    reading = watch.read(100.0, [8], 12.5)
    assert reading.busiest == ("mds",)
    assert (reading.power, reading.thermal, reading.cpu_limit) == ("battery", "serious", 1.0)
    assert (reading.low_power, reading.lid_closed, reading.asleep) == (True, True, 12.5)
    assert reading.idle is None
    before = len(mac.asked)
    time.sleep(0.05)  # the clock that counts idle time ticks every 10 ms
    again = watch.read(115.0, [8], 12.5)
    assert len(mac.asked) == before + 1
    assert again.power == "battery"
    assert again.idle is not None
    watch.read(131.0, [8], 12.5)
    assert len(mac.asked) > before + 3


@pytest.mark.parametrize(
    ("pressure", "warned", "level"),
    [
        (0, None, "nominal"),
        (1, "nominal", "fair"),
        (3, None, "critical"),
        (None, "serious", "serious"),
        (None, None, None),
    ],
)
def test_the_pressure_level_comes_before_pmsets_warning(
    pressure: int | None, warned: str | None, level: str | None
) -> None:
    assert machine.thermal_level(pressure, warned) == level


@pytest.mark.usefixtures("mac")
def test_rosetta_is_a_fact() -> None:
    facts = machine.facts()
    assert facts["rosetta"] is True
    assert facts["version"] == "26.5"
    assert machine.facts_from({}, {})["rosetta"] is None


def test_jetsam_is_distinguished_from_the_exit_events_data() -> None:
    assert process_end.was_memory(0x20009)
    assert not process_end.was_memory(0x00009)
    assert not process_end.was_memory(0x10009)


def test_an_idle_share_that_psutil_cannot_tell_is_not_known(monkeypatch):
    def broken():
        raise RuntimeError("host_statistics64(HOST_CPU_LOAD_INFO): (ipc/mig) array not large enough")

    monkeypatch.setattr("psutil.cpu_times", broken)
    assert DarwinMachineWatch()._idle() is None


def test_connections_that_psutil_cannot_tell_are_not_known(monkeypatch):
    def broken(*_arguments):
        raise SystemError("returned NULL without setting an exception")

    monkeypatch.setattr("psutil.Process.net_connections", broken)
    assert process_tree.is_remote([os.getpid()]) is None


def test_what_the_compressor_and_the_swap_hold_and_can_hold() -> None:
    pages = parse.pages((RECORDINGS / "vm_stat_m_series_32g_healthy.txt").read_text())
    # The limits are those of a Mac with 64 GiB, as its owner published them.
    sysctl = {
        "vm.swapusage": "total = 13312.00M  used = 11625.69M  free = 1686.31M  (encrypted)",
        "vm.compressor_segment_limit": "1629615",
        "vm.compressor_segment_buffer_size": "65536",
    }
    reading = machine.memory_reading(sysctl, pages)
    assert reading.paged == 96636 * 16384 + round(11625.69 * 2**20)
    assert reading.paged_limit == 1629615 * 65536

    unknown = machine.memory_reading({}, pages)
    assert (unknown.paged, unknown.paged_limit) == (None, None)

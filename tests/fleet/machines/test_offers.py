"""What a machine offers: what is not known is never offered."""

from __future__ import annotations

import os
import sys

import pytest

import stallguard
from stallguard.core.readings import Memory
from stallguard.doctor.facts import Installed
from stallguard.fleet.engine.worker_process import machine_facts, power_now
from stallguard.fleet.machines.offers import OfferedMachine, gigabytes, offer, usable
from stallguard.host.types import ListedGpu

GB = 10**9
MAC = {"system": "macOS", "version": "15.3", "machine": "arm64", "chip": "Apple M2 Ultra", "rosetta": False}
LINUX = {"system": "Linux", "version": "Ubuntu 24.04", "machine": "x86_64", "chip": "EPYC"}
M2 = (ListedGpu("Apple M2 Ultra", 60),)


def mac(about=None, **more):
    return OfferedMachine(MAC | (about or {}), **({"memory": Memory(total=64 * GB), "gpus": M2, "cards": 0} | more))


def test_a_mac_studio_offers_metal_and_mlx():
    found = offer(mac(), slots=2)
    assert found.resources == {"slots": 2, "memory": 56.0, "metal": 1, "mlx": 1}
    assert (found.chip, found.unknown) == ("Apple M2 Ultra", ())


def test_a_box_with_cards_offers_their_number_and_no_metal():
    found = offer(OfferedMachine(LINUX, Memory(total=128 * GB), gpus=None, cards=4), slots=1)
    assert found.resources == {"slots": 1, "memory": 112.0, "cuda": 4}


@pytest.mark.parametrize(
    ("changed", "absent", "word"),
    [
        (mac(gpus=None), {"metal", "mlx"}, "metal"),
        (mac(cards=None), {"cuda"}, "cuda"),
        (mac(memory=Memory()), {"memory"}, "memory"),
        (mac({"version": None}), {"mlx"}, "mlx"),
    ],
)
def test_what_is_not_known_is_neither_offered_nor_zero_and_is_said(changed, absent, word):
    found = offer(changed, slots=1)
    assert not absent & set(found.resources)
    assert [text.partition(":")[0] for text in found.unknown] == [word]


@pytest.mark.parametrize(
    ("changed", "absent"),
    [
        (mac(gpus=()), {"metal", "mlx"}),
        (mac(gpus=(ListedGpu("Apple Paravirtual device", virtual=True),)), {"metal", "mlx"}),
        (mac({"machine": "x86_64", "rosetta": None}), {"metal", "mlx"}),
        (mac({"version": "13.6"}), {"mlx"}),
    ],
)
def test_a_mac_that_cannot_does_not_offer_it(changed, absent):
    found = offer(changed, slots=1)
    assert not absent & set(found.resources)
    assert found.unknown == ()


def test_a_mac_whose_worker_runs_under_rosetta_has_its_gpu_all_the_same():
    assert offer(mac({"machine": "x86_64", "rosetta": True}), slots=1).resources["metal"] == 1


def test_memory_is_what_is_left_beside_the_system_and_other_programs():
    assert usable(Memory(total=64 * GB)) == 56 * GB
    assert usable(Memory(total=16 * GB)) == 12 * GB
    assert usable(Memory(total=2 * GB)) == 0
    assert usable(Memory(total=64 * GB, limit=32 * GB)) == 28 * GB
    assert usable(Memory(total=64 * GB, available=20 * GB)) == 20 * GB
    assert usable(Memory(total=64 * GB, available=20 * GB), ours=30 * GB) == 50 * GB
    assert usable(Memory(available=20 * GB)) is None
    assert gigabytes(31_990_000_000) == 31.9


def test_the_owner_decides_how_much_memory_jobs_get():
    assert offer(mac(memory=Memory()), 1, memory=8 * GB).resources["memory"] == 8.0


def test_versions_name_the_packages_that_are_there():
    installed = Installed(
        executable="/v/bin/python", version=(3, 11, 9),
        packages={"tensorflow-macos": "2.15.0", "keras": "2.15.0", "numpy": "1.26.4", "protobuf": "4", "mlx": ""},
    )  # fmt: skip
    assert offer(mac(installed=installed), 1).versions == {
        "stallguard": stallguard.__version__, "python": "3.11.9", "tensorflow": "2.15.0", "keras": "2.15.0",
        "numpy": "1.26.4",
    }  # fmt: skip
    assert offer(mac(), 1).versions == {"stallguard": stallguard.__version__}


def test_this_machine_is_read_without_importing_a_framework(tmp_path):
    before = set(sys.modules)
    found = offer(machine_facts(os.environ, tmp_path, sys.executable), slots=1)
    assert found.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found.versions["numpy"]
    assert found.resources["memory"] >= 0
    assert not {"tensorflow", "torch", "mlx", "jax"} & (set(sys.modules) - before)


def test_the_power_of_this_machine_is_read():
    from stallguard.host import system

    found = power_now(system.MachineWatch(), 0.0)
    assert found.source in ("ac", "battery", None)
    assert found.has_battery in (True, False, None)

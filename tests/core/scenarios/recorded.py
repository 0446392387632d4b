"""What Macs were recorded saying, as the readings that the sensors would make of it (tests/recordings/macos)."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from stallguard.collectors import stacks
from stallguard.core.diagnosis.signatures import matches
from stallguard.core.readings import Device, Memory
from stallguard.host.darwin import machine, parsers

RECORDINGS = Path(__file__).resolve().parents[2] / "recordings" / "macos"


def text(name: str) -> str:
    return (RECORDINGS / name).read_text("utf-8")


def gpu(name: str, **more: object) -> Device:
    found = parsers.accelerators(text(name))
    return replace(machine.AppleGpu().reading(found, [], set()), **more)


def memory(sysctl: str, pages: str) -> Memory:
    announced = parsers.sysctl(text(sysctl)) | {"hw.memsize": "17179869184"}
    return machine.memory_reading(announced, parsers.pages(text(pages)))


def thermal(name: str) -> str | None:
    return machine.thermal_level(None, parsers.thermal(text(name)).level)


def signatures(name: str) -> list[tuple[str, str]]:
    """Return (signature, line) of every line of a recorded output that means something."""
    lines = text(name).splitlines()
    return [(found.id, line) for line in lines for found in matches(line)[:1]]


def stack_classes(name: str) -> tuple[str, ...]:
    return stacks.native_classes(stacks.parse_sample(text(name)))

"""The record and the file of sampled stacks: what is stored is read, and damaged bytes are no record."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.probe import outbox, wire


def record(**fields: int) -> bytes:
    slots = outbox.begin(outbox.private(), token=7, pid=12, now=5)
    for name, value in fields.items():
        slots[wire.SLOT[name]] = value
    return wire.pack(slots)


def test_what_is_stored_is_read() -> None:
    read = wire.unpack(record(beats=9, slices=4, phase=wire.PHASES.index("step")))

    assert read is not None
    assert (read["token"], read["pid"], read["beats"], read["slices"], read["batch"]) == (7, 12, 9, 4, -1)
    assert wire.PHASES[read["phase"]] == "step"


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": wire.MAGIC - 1}, {"magic": 0}, {"pid": 0}, {"pid": wire.PID_MAX + 1}, {"beats": -1}, {"beat_ns": -1},
        {"phase": len(wire.PHASES)}, {"phase": -1}, {"source": len(wire.SOURCES)}, {"wait": len(wire.WAITS)},
        {"kind": len(wire.KINDS)},
    ],
)  # fmt: skip
def test_a_record_of_another_version_or_with_impossible_numbers_is_none(fields: dict[str, int]) -> None:
    assert wire.unpack(record(**fields)) is None


@given(st.binary(max_size=2 * wire.SIZE))
def test_any_bytes_can_be_read(data: bytes) -> None:
    wire.unpack(data)
    wire.profile_text(data)


@given(st.floats(allow_nan=False))
def test_a_loss_passes_through_a_slot(value: float) -> None:
    bits = wire.float_bits(value)

    assert -(1 << 63) <= bits < 1 << 63
    assert wire.bits_float(bits) == value
    assert math.isnan(wire.bits_float(wire.float_bits(math.nan)))


def test_a_request_for_stacks_is_one_more_than_before() -> None:
    page = record(stacks=4)

    assert struct.unpack("<q", wire.asked(page)) == (5,)


@pytest.mark.parametrize(("writes", "text"), [(0, None), (1, None), (2, b"abc"), (3, None)])
def test_stacks_are_read_between_two_writes_alone(writes: int, text: bytes | None) -> None:
    assert wire.profile_text(struct.pack("<2q", writes, 3) + b"abcdef") == text

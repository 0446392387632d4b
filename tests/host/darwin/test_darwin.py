"""What is macOS' own of the clocks, and of a socket's other end."""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stallguard.probe
from stallguard.host import darwin
from stallguard.host.darwin import libproc


@pytest.fixture
def mac_of_tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac whose Python counts sleep in `time.monotonic`."""
    clocks = {8: 100.5, 4: 4000.0}
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(time, "CLOCK_UPTIME_RAW", 8, raising=False)
    monkeypatch.setattr(time, "CLOCK_MONOTONIC_RAW", 4)
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "clock_gettime_ns", lambda which: int(clocks[which] * 1e9))
    monkeypatch.setattr(time, "monotonic", lambda: 4000.0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 4000 * 10**9)


def test_sleep_is_in_no_age_on_a_mac_also_if_pythons_own_clock_counts_it(mac_of_tomorrow: None) -> None:
    assert (darwin.monotonic(), darwin.asleep()) == (100.5, 3899.5)


def test_runs_are_kept_where_macos_keeps_the_data_of_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/Users/me")
    assert darwin.user_data() == Path("/Users/me/Library/Application Support")


def test_the_probe_names_the_same_clock(mac_of_tomorrow: None) -> None:
    source = Path(stallguard.probe.__file__).with_name("beats.py")
    choices = [one for one in ast.parse(source.read_text()).body if "platform" in ast.unparse(one).partition(":")[0]]
    names: dict[str, Any] = {"sys": sys, "time": time}
    exec(compile(ast.Module(choices, []), str(source), "exec"), names)  # noqa: S102 - as a Mac would load it
    assert names["monotonic_ns"]() == 100_500_000_000


def test_the_kernels_answer_on_macos_is_read() -> None:
    whole = darwin._XUCRED.pack(0, 501, 2, *range(16))

    assert len(whole) == 76
    assert darwin.user_in(whole) == 501
    assert darwin.user_in(b"\x01" + whole[1:]) is None  # another version
    assert darwin.user_in(whole[:5]) is None


@pytest.mark.parametrize(("value", "boot"), [(b"9B1D4C5E-0C2F-4E55-9B0A-6E2A3C1F7D10", "9B1D"), (None, "?")])
def test_the_boot_is_that_which_the_kernel_names(monkeypatch, value: bytes | None, boot: str) -> None:
    def sysctlbyname(name: bytes, buffer: Any, _size: Any, _new: Any, _length: Any) -> int:
        assert name == b"kern.bootsessionuuid"
        buffer.value = value or b""
        return 0 if value else -1

    monkeypatch.setattr(libproc, "library", lambda: SimpleNamespace(sysctlbyname=sysctlbyname))
    assert darwin.boot.__wrapped__().startswith(boot)

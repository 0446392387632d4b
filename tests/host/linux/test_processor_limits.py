"""The quota of a control group: how long it held a process back, from files of both versions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stallguard.host.linux import process_tree, processor_limits
from stallguard.host.linux.processor_limits import has_quota, parse_groups, parse_throttled

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

V1 = "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
V2 = "0::/user.slice/train.service\n"


def test_the_groups_that_can_have_a_quota_are_found() -> None:
    assert parse_groups(V2, "/cg") == [(2, "/cg/user.slice/train.service")]
    assert parse_groups(V1, "/cg") == [(1, "/cg/cpu,cpuacct/docker/abc"), (2, "/cg")]
    assert parse_groups("nonsense", "/cg") == []


@pytest.mark.parametrize(
    ("text", "limited"),
    [(b"max 100000\n", False), (b"50000 100000\n", True), (b"-1\n", False), (b"20000\n", True), (b"", False)],
)
def test_a_quota_is_a_number(text: bytes, limited: bool) -> None:
    assert has_quota(text) is limited


def test_the_time_held_back_is_in_seconds_and_unknown_if_it_is_not_there() -> None:
    assert parse_throttled(b"usage_usec 9\nnr_throttled 3\nthrottled_usec 2500000\n", 2) == 2.5
    assert parse_throttled(b"nr_periods 9\nthrottled_time 2500000000\n", 1) == 2.5
    assert parse_throttled(b"usage_usec 9\n", 2) is None


@linux
def test_a_quota_of_a_group_above_holds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "user.slice" / "train.service"
    group.mkdir(parents=True)
    (group / "cpu.max").write_text("max 100000")
    (tmp_path / "user.slice" / "cpu.max").write_text("50000 100000")
    (tmp_path / "user.slice" / "cpu.stat").write_text("throttled_usec 7000000")
    monkeypatch.setattr(processor_limits, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(processor_limits, "parse_groups", lambda _text: [(2, str(group))])
    assert processor_limits.throttled(os.getpid()) == 7.0
    (tmp_path / "user.slice" / "cpu.max").write_text("max 100000")
    assert processor_limits.throttled(os.getpid()) is None


@linux
def test_how_nice_a_process_is_is_read() -> None:
    wanted = min(19, os.nice(0) + 7)  # the suite itself can be nice
    with subprocess.Popen(["nice", "-n", "7", "sleep", "60"]) as child:
        try:
            end = time.monotonic() + 30
            while process_tree.Tree(child.pid).read().nice != wanted and time.monotonic() < end:
                time.sleep(0.01)
            assert process_tree.Tree(child.pid).read().nice == wanted
        finally:
            child.kill()

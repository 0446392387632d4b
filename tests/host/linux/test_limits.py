"""Memory, quotas, limits and kills for memory, on this machine and from files of other ones."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.host.linux import limits, procfs
from stallguard.host.linux.limits import (
    ControlGroup,
    Limit,
    OomWatch,
    has_quota,
    memory,
    parse_file_pages,
    parse_groups,
    parse_limits,
    parse_pressure,
)
from tests.host.children import eventually, running

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_the_machines_memory_is_known_and_plausible() -> None:
    reading = memory()
    assert reading.total is not None
    assert reading.available is not None
    assert 0 < reading.available <= reading.total
    assert reading.swap_used is not None


@pytest.mark.costly
@linux
def test_an_rlimit_is_a_limit_and_its_use_is_reported() -> None:
    limit = 2 << 30
    source = f"""
import resource, time
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
held = bytearray(300 << 20)
print(flush=True); time.sleep(60)
"""
    with running(source) as child:
        reading = memory(child.pid)
        assert reading.limit == limit
        assert reading.limit_used is not None
        assert 300 << 20 < reading.limit_used < 500 << 20


def test_the_limit_nearest_to_full_is_reported() -> None:
    assert limits.tightest([Limit(100, 10), Limit(1000, 900), Limit(50, 20)]) == Limit(1000, 900)
    assert limits.tightest([]) is None


V1 = "9:name=systemd:/\n4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n"
V2 = "0::/user.slice/train.service\n"


def test_the_groups_that_can_have_a_controller_are_found_in_both_versions_and_in_a_hybrid() -> None:
    root = limits.CGROUPS
    assert parse_groups(V2, "cpu") == [ControlGroup(f"{root}/user.slice/train.service", 2)]
    assert parse_groups(V1, "cpu") == [ControlGroup(f"{root}/cpu,cpuacct/docker/abc", 1), ControlGroup(root, 2)]
    assert parse_groups(V1, "memory") == [ControlGroup(f"{root}/memory/docker/abc", 1), ControlGroup(root, 2)]
    assert parse_groups("nonsense", "cpu") == []


def test_of_a_hybrid_the_first_version_accounts_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "slurp", lambda _path: "".join(reversed(V1.splitlines(keepends=True))).encode())
    assert limits.group_of(None) == ControlGroup(f"{limits.CGROUPS}/memory/docker/abc", 1)


def test_the_levels_of_a_group_end_at_the_root_of_its_hierarchy() -> None:
    root = limits.CGROUPS
    assert list(ControlGroup(f"{root}/a/b", 2).levels()) == [f"{root}/a/b", f"{root}/a", root]
    assert list(ControlGroup(f"{root}/memory/a", 1).levels()) == [f"{root}/memory/a", f"{root}/memory"]


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A version 2 hierarchy on disk: `job` has no limit of its own, `slice` above it has."""
    monkeypatch.setattr(limits, "CGROUPS", str(tmp_path))
    job = tmp_path / "slice" / "job"
    job.mkdir(parents=True)
    (job / "memory.max").write_text("max\n")
    (job / "memory.current").write_text("500\n")
    (job / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n")
    (tmp_path / "slice" / "memory.max").write_text("1000\n")
    (tmp_path / "slice" / "memory.current").write_text("900\n")
    return tmp_path


def test_a_limit_above_the_group_holds_too(groups: Path) -> None:
    assert limits._group_limits(ControlGroup(f"{groups}/slice/job", 2)) == [Limit(1000, 900)]


def test_pages_of_files_that_the_kernel_drops_are_not_used_for_good(groups: Path) -> None:
    (groups / "slice" / "memory.stat").write_text("anon 300\nfile 560\nshmem 60\ninactive_file 400\nactive_file 100\n")
    assert limits._group_limits(ControlGroup(f"{groups}/slice/job", 2)) == [Limit(1000, 400)]


@pytest.mark.parametrize(
    ("stat", "cached"),
    [
        # Version 1 counts the groups below in names of their own.
        (b"inactive_file 4\nactive_file 3\ntotal_inactive_file 40\ntotal_active_file 30\n", 70),
        (b"inactive_file 4\nactive_file 3\n", 7),
        (b"inactive_file x\nactive_file 3 4\n\nfile", 0),
        (b"", 0),
    ],
)
def test_the_file_pages_of_a_group_are_read_in_both_versions(stat: bytes, cached: int) -> None:
    assert parse_file_pages(stat) == cached


def test_kills_are_counted_from_the_right_line(groups: Path) -> None:
    assert limits.oom_kills(ControlGroup(f"{groups}/slice/job", 2)) == 1
    assert limits.oom_kills(ControlGroup(f"{groups}/slice", 2)) is None
    assert limits.oom_kills(None) is None


@linux
def test_a_kill_for_memory_is_distinguished_from_any_other_end(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "group_of", lambda _pid: ControlGroup(f"{groups}/slice/job", 2))
    watch = OomWatch(1)
    assert watch.killed() is False
    (groups / "slice/job/memory.events").write_text("oom 2\noom_kill 2\n")
    assert watch.killed() is True


@linux
def test_without_a_group_a_kill_somewhere_is_unknown_and_none_anywhere_is_certain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = iter([7, 7, 8])
    monkeypatch.setattr(limits, "group_of", lambda _pid: None)
    monkeypatch.setattr(limits, "_counter", lambda _path, _name: next(counts))
    watch = OomWatch(1)
    assert watch.killed() is False
    assert watch.killed() is None


@linux
def test_a_process_that_was_moved_is_followed_to_its_new_group(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = [ControlGroup(f"{groups}/elsewhere", 2)]
    monkeypatch.setattr(limits, "group_of", lambda _pid: where[0])
    watch = OomWatch(1)
    where[0] = ControlGroup(f"{groups}/slice/job", 2)
    watch.look()
    (groups / "slice/job/memory.events").write_text("oom_kill 5\n")
    assert watch.killed() is True


@pytest.fixture
def small_group() -> str:
    """A real control group with 64 MiB; the test is left out where we may not make one."""
    own = limits.group_of(None)
    if own is None:
        pytest.skip("no memory control group here")
    path = Path(own.path) / f"stallguard-test-{os.getpid()}"  # another suite can run beside this one
    limit = {1: "memory.limit_in_bytes", 2: "memory.max"}[own.version]
    try:
        path.mkdir()
        (path / limit).write_text(str(64 << 20))
    except OSError:
        path.is_dir() and path.rmdir()
        pytest.skip("control groups may not be made here")
    yield str(path)
    assert eventually(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


@linux
def test_a_real_kill_in_a_real_group_is_seen(small_group: str) -> None:
    source = f"""
import sys, time
open({small_group + "/cgroup.procs"!r}, "w").write("0")
print(flush=True)
sys.stdin.readline() if False else time.sleep(1.0)
held = []
while True:
    held.append(bytearray(8 << 20))
"""
    with running(source) as child:
        watch = OomWatch(child.pid)
        watch.look()
        reading = memory(child.pid)
        assert reading.limit == 64 << 20
        assert reading.oom_kills == 0
        assert child.wait(30) == -9
        assert watch.killed() is True


def test_pressure_is_a_share() -> None:
    text = b"some avg10=12.50 avg60=0.02 avg300=0.06 total=3748440\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=0\n"
    assert parse_pressure(text) == {"some": 0.125, "full": 0.03}


def test_soft_limits_are_read_and_unlimited_ones_left_out() -> None:
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             1073741824           unlimited            bytes     \n"
        "Max address space         unlimited            unlimited            bytes     \n"
        "Max open files            1024                 524288               files     \n"
    )
    assert parse_limits(text) == {"Max data size": 1 << 30}


@given(st.binary(max_size=300))
def test_rubbish_is_unknown_never_an_error(rubbish: bytes) -> None:
    text = rubbish.decode("latin-1")
    parse_pressure(rubbish)
    parse_limits(text)
    parse_groups(text, "cpu")
    procfs.sizes(rubbish)
    procfs.parse_io(rubbish)
    procfs.parse_stat(rubbish)


@pytest.mark.parametrize(
    ("text", "limited"),
    [(b"max 100000\n", False), (b"50000 100000\n", True), (b"-1\n", False), (b"20000\n", True), (b"", False)],
)
def test_a_quota_is_a_number(text: bytes, limited: bool) -> None:
    assert has_quota(text) is limited


QUOTAS = {  # of a hierarchy: the file of the quota, without and with one; the time held back
    1: ("cpu.cfs_quota_us", "-1", "20000", "nr_periods 9\nthrottled_time 7000000000\n"),
    2: ("cpu.max", "max 100000", "50000 100000", "usage_usec 9\nnr_throttled 3\nthrottled_usec 7000000\n"),
}


@pytest.mark.parametrize("version", QUOTAS)
def test_a_quota_of_a_group_above_holds_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    file, none, some, stat = QUOTAS[version]
    group = tmp_path / "cpu" / "train.service"
    group.mkdir(parents=True)
    (group / file).write_text(none)
    (tmp_path / "cpu" / file).write_text(some)
    monkeypatch.setattr(limits, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(limits, "groups_of", lambda *_words: [ControlGroup(str(group), version)])
    assert limits.throttled(os.getpid()) is None, "the file does not say it"
    (tmp_path / "cpu" / "cpu.stat").write_text(stat)
    assert limits.throttled(os.getpid()) == 7.0
    (tmp_path / "cpu" / file).write_text(none)
    assert limits.throttled(os.getpid()) is None

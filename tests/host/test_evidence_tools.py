"""What each system is asked about a stuck process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from stallguard.collectors import BUDGET
from stallguard.host.darwin import evidence_tools

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
if sys.platform == "linux":
    from stallguard.host.linux import evidence_tools as linux_tools


def darwin_tools(since=0.0, now=0.0):
    return {tool.name: tool for tool in evidence_tools.tools(4242, since, now)}


def test_macos_tools_are_absolute_need_no_root_and_name_the_process():
    for tool in darwin_tools().values():
        assert tool.argv[0].startswith("/")
        assert "sudo" not in tool.argv
    for name in ("sample", "threads", "files", "maps", "footprint"):
        assert "4242" in darwin_tools()[name].argv


def test_what_stops_the_process_on_macos_is_asked_for_only_by_who_wants_it():
    assert {name for name, tool in darwin_tools().items() if tool.deep} == {"maps", "footprint"}


@pytest.mark.parametrize(("age", "slice_"), [(0, "1m"), (600, "10m"), (36_000, "60m")])
def test_the_slice_of_the_unified_log_covers_the_attempt_and_is_bounded(age, slice_):
    assert slice_ in darwin_tools(since=1000.0, now=1000.0 + age)["log"].argv


def test_on_macos_all_that_a_restart_waits_for_fits_into_the_budget():
    waited_for = [tool for tool in darwin_tools().values() if not tool.deep and not tool.outlasts]
    assert max(tool.seconds for tool in waited_for) < BUDGET
    assert {tool.name for tool in darwin_tools().values() if tool.outlasts} == {"log"}


def test_the_unified_log_is_asked_for_little():
    log = darwin_tools()["log"].argv
    assert "--info" not in log
    assert log[-1].startswith('(process == "kernel" AND ')
    assert "processID == 4242" in log[-1]


@linux
def test_every_thread_is_reported_with_where_it_waits():
    stop = threading.Event()
    waiting = threading.Thread(target=stop.wait)
    waiting.start()
    try:
        end = time.monotonic() + 5.0  # a thread that was just made may still be on its way into the wait
        row = ""
        while "sleeping" not in row and time.monotonic() < end:
            rows = linux_tools.threads(os.getpid()).splitlines()
            row = next(row for row in rows if row.split()[:1] == [str(waiting.native_id)])
        assert row.split()[1] == "sleeping"
        assert "futex" in row
        assert any(row.split()[:1] == [str(threading.get_native_id())] for row in rows)
    finally:
        stop.set()
        waiting.join()


@linux
@pytest.mark.parametrize(
    ("code", "site"),
    [
        ("import threading; l = threading.Lock(); l.acquire(); l.acquire()", "futex"),
        ("import time; time.sleep(60)", "sleep"),
    ],
    ids=["lock", "sleep"],
)
def test_a_main_thread_that_waits_for_a_lock_is_distinguished_from_one_that_sleeps(code, site):
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 20
        while linux_tools.main_wait(child.pid) != site and time.monotonic() < deadline:
            time.sleep(0.02)
        assert linux_tools.main_wait(child.pid) == site
    finally:
        child.kill()
        child.wait()


@linux
def test_the_address_space_is_summed_by_name():
    rows = (
        "10000-20000 r-xp 0 00:00 1  /lib/a b.so",
        "20000-21000 rw-p 0 00:00 1  /lib/a b.so",
        "30000-31000 rw-p 0 00:00 0",
    )
    assert linux_tools.summed("\n".join(rows)) == {"/lib/a b.so": 0x11000, "[anonymous]": 0x1000}
    assert "python" in linux_tools.maps(os.getpid())


@linux
def test_open_files_are_reported_by_their_links(tmp_path):
    with (tmp_path / "x").open("w") as file:
        assert f"{file.fileno():>5} -> {tmp_path / 'x'}\n" in linux_tools.files(os.getpid())


@linux
def test_a_process_that_is_gone_is_no_error_here():
    child = subprocess.Popen(["true"])
    child.wait()
    assert linux_tools.main_wait(child.pid) == ""
    assert len(linux_tools.threads(child.pid).splitlines()) == 1

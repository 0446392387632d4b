"""What Linux is asked about a stuck process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
if sys.platform == "linux":
    from stallguard.host.linux import evidence_tools as linux_tools


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

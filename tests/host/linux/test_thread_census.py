"""Where threads wait, by real children and by the words of the kernel."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.host.linux import thread_census
from stallguard.host.linux.thread_census import census, is_remote, network_mounts, remote_sockets, wait_site
from tests.host.children import eventually, running

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

X86 = thread_census._by_number("x86_64")
ARM = thread_census._by_number("aarch64")


@linux
@pytest.mark.parametrize(
    ("site", "body"),
    [
        ("futex", "import threading; lock = threading.Lock(); lock.acquire(); print(flush=True); lock.acquire()"),
        ("timed", "import threading; e = threading.Event(); print(flush=True); e.wait(60)"),
        ("sleep", "import time; print(flush=True); time.sleep(60)"),
        ("read", "import os; r, w = os.pipe(); print(flush=True); os.read(r, 1)"),
        ("sock", "import socket; a, b = socket.socketpair(); print(flush=True); a.recv(1)"),
        ("poll", "import select, os; r, w = os.pipe(); print(flush=True); select.select([r], [], [])"),
        ("wait", "import os, time\nif not os.fork(): time.sleep(60)\nprint(flush=True); os.wait()"),
        ("run", "print(flush=True)\nwhile True: pass"),
    ],
)
def test_a_real_thread_is_found_at_its_wait_site(site: str, body: str) -> None:
    with running(body) as child:
        assert eventually(lambda: census([child.pid]) == {site: 1})


@linux
def test_threads_that_do_not_count_are_left_out() -> None:
    body = (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); lock = "
        "threading.Lock(); lock.acquire(); print(flush=True); lock.acquire()"
    )
    with running(body) as child:
        assert eventually(lambda: census([child.pid]) == {"futex": 1, "sleep": 1})
        assert census([child.pid], (child.pid,)) == {"sleep": 1}


# The last is a system call that no other site has, as the ioctl of NVIDIA's driver.
WAITS = ("select.poll().poll(60_000)", "os.read(os.pipe()[0], 1)", "fcntl.flock(os.open('.', 0), fcntl.LOCK_EX)")
# A program whose second thread has a name, and waits; its first one waits for a lock.
NAMED = """
import ctypes, fcntl, os, select, threading
def serve():
    ctypes.CDLL(None).prctl(15, b"{name}", 0, 0, 0)  # PR_SET_NAME
    {waits}
threading.Thread(target=serve, daemon=True).start()
print(flush=True)
threading.Lock().acquire() and threading.Event().wait()
"""


@linux
def test_threads_of_zeromq_do_not_count() -> None:
    with running(NAMED.format(name="ZMQbg/IO/0", waits=WAITS[0])) as child:
        assert eventually(lambda: census([child.pid]) == {"futex": 1})


@linux
@pytest.mark.parametrize("waits", WAITS)
def test_a_thread_of_the_gpus_driver_is_at_a_site_of_its_own(
    waits: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with running(NAMED.format(name="cuda00002000009", waits=waits)) as child:
        assert eventually(lambda: census([child.pid]) == {"futex": 1, "driver": 1})
    os.close(held)


@linux
def test_a_process_that_is_gone_is_no_site_and_no_refusal() -> None:
    with running("import time; print(flush=True); time.sleep(60)") as child:
        child.kill()
        child.wait()
        assert census([child.pid]) is None


@pytest.mark.parametrize(
    ("machine", "call", "site"),
    [
        (X86, b"202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe 0x7f3", "futex"),
        (X86, b"202 0x7f 0x189 0x0 0x7ffe10 0x0 0xffffffff 0x7ffe 0x7f3", "timed"),
        (ARM, b"98 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe 0x7f3", "futex"),
        (ARM, b"202 0x5 0x0 0x0 0x80800 0x0 0x0 0x7ffe 0x7f3", "sock"),
        (ARM, b"449 0x7f 0x1 0x0 0x7ffe10 0x1 0x0 0x7ffe 0x7f3", "timed"),
        (X86, b"455 0x7f 0x1 0xff 0x2 0x0 0x1 0x7ffe 0x7f3", "futex"),
        (X86, b"23 0x0 0x0 0x0 0x0 0x7ffe10 0x0 0x7ffe 0x7f3", "sleep"),
        (X86, b"23 0x5 0x7f 0x0 0x0 0x7ffe10 0x0 0x7ffe 0x7f3", "poll"),
        (X86, b"16 0x5 0x7f 0x0 0x0 0x7ffe10 0x0 0x7ffe 0x7f3", "other"),
        (X86, b"-1 0x7ffe 0x7f3", "other"),
        (X86, b"running\n", "run"),
        ({}, b"202 0x7f 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe 0x7f3", "other"),
    ],
)
def test_the_kernels_words_name_the_site(machine: dict[int, str], call: bytes, site: str) -> None:
    assert wait_site("sleeping", call, machine) == site


def test_an_uninterruptible_thread_waits_for_the_disk_in_any_call() -> None:
    assert wait_site("uninterruptible", b"0 0x5 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f3", X86) == "disk"


@given(st.sampled_from(["sleeping", "running", "stopped", "uninterruptible"]), st.binary(max_size=80))
def test_any_words_have_a_site(state: str, call: bytes) -> None:
    known = ["futex", "timed", "sleep", "poll", "sock", "read", "write", "sync", "wait", "run", "disk", "other"]
    assert wait_site(state, call, X86) in known


TCP = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
   2: 0A00020F:D431 5DB8D822:01BB 01 00000000:00000000 02:000004D2 00000000     0        0 13 2 0 20 4 30 10 -1
   3: 0A00020F:D432 5DB8D822:01BB 06 00000000:00000000 02:000004D2 00000000     0        0 14 2 0 20 4 30 10 -1
"""
TCP6 = b"""  sl  local_address                         remote_address                        st tx_queue rx
   0: 00000000000000000000000001000000:1 00000000000000000000000001000000:2 01 0:0 0:0 0 0 0 21 1
   1: 0000000000000000FFFF00000100007F:1 0000000000000000FFFF00000100007F:2 01 0:0 0:0 0 0 0 22 1
   2: B80D0120000000000000000001000000:1 B80D01200000000000000000DEADBEEF:2 01 0:0 0:0 0 0 0 23 1
"""


def test_only_established_connections_to_other_hosts_are_remote() -> None:
    assert remote_sockets(TCP) == {"13"}
    assert remote_sockets(TCP6) == {"23"}


@given(st.binary(max_size=400))
def test_a_torn_socket_table_is_survived(table: bytes) -> None:
    remote_sockets(table)
    network_mounts(table)


def test_network_mounts_are_distinguished_from_local_ones() -> None:
    text = b"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 22 0:27 / /data rw,relatime shared:9 - nfs4 server:/export rw,vers=4.2
32 22 0:28 / /bucket rw - fuse.s3fs s3fs rw
33 22 0:29 / /run rw - tmpfs tmpfs rw
34 22 0:30"""
    assert network_mounts(text) == ["/data", "/bucket"]


@linux
def test_a_local_socket_does_not_make_a_job_remote() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"""
import socket, time
s = socket.create_connection(("127.0.0.1", {port})); print(flush=True); time.sleep(60)
"""
        with running(body) as child:
            assert is_remote([child.pid]) is False


@linux
def test_an_open_file_of_a_network_mount_makes_a_job_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    with running("import time; f = open('/dev/null'); print(flush=True); time.sleep(60)") as child:
        assert is_remote([child.pid]) is False
        monkeypatch.setattr(thread_census, "network_mounts", lambda _text: ["/dev"])
        assert is_remote([child.pid]) is True


def test_a_process_whose_files_cannot_be_listed_is_unknown() -> None:
    assert is_remote([2**22 + 1]) is None

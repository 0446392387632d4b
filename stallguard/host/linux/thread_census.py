"""Where the threads of a process tree wait, and whether anything remote could wake them.

/proc/PID/task/TID/syscall names the system call that a blocked thread sits in.  No root is needed for one's
own children; if the kernel refuses (hidepid, Yama's scope 2 and 3) the answer is None.  About 0.9 ms for
60 threads, so it is taken only when it matters.  This module must not interpret a wait.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections import Counter
from collections.abc import Collection, Iterable

from stallguard.host.linux import procfs

THREADS_MAX = 2000  # 30 ms; a census of more would be late
# Threads of ZeroMQ, by their names: they carry messages to a thread of the program, which then waits in poll itself.
SERVANTS = "ZMQbg/"
# Threads of NVIDIA's driver ("cuda00002000009", "cuda-EvtHandlr"), which poll its files all the time, and call ioctl.
DRIVER, OF_DRIVER = "cuda", ("poll", "read", "write", "other")
FILES_MAX = 1024  # open files looked at, a process

# System call numbers by the name that uname(2) gives the machine: arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h (arm64) of the kernel; futex_wait and later are the same everywhere.
_X86: dict[str, tuple[int, ...]] = {
    "futex": (202,), "sleep": (35, 230), "poll": (7, 232, 271, 281), "select": (23, 270),
    "sock": (42, 43, 44, 45, 46, 47, 288, 299, 307), "read": (0, 17, 19, 275, 295, 327),
    "write": (1, 18, 20, 296), "sync": (26, 74, 75, 162, 277, 306), "wait": (34, 61, 128, 130, 247),
    "run": (24,),
}  # fmt: skip
_ARM: dict[str, tuple[int, ...]] = {
    "futex": (98,), "sleep": (101, 115), "poll": (22, 73), "select": (72,),
    "sock": (202, 203, 206, 207, 211, 212, 242, 243, 269), "read": (63, 65, 67, 69, 76, 286),
    "write": (64, 66, 68, 70), "sync": (81, 82, 83, 84, 227, 267), "wait": (95, 133, 137, 260), "run": (124,),
}  # fmt: skip
_COMMON: dict[str, tuple[int, ...]] = {"poll": (441,), "futex_waitv": (449,), "futex_wait": (455,)}
_TABLES = {"x86_64": _X86, "aarch64": _ARM}
# Which argument of a futex call is the timeout: futex(2), futex_waitv(2), futex_wait(2).  Zero is for ever.
_TIMEOUT = {"futex": 3, "futex_waitv": 3, "futex_wait": 4}


def _by_number(machine: str) -> dict[int, str]:
    tables = (_TABLES.get(machine, {}), _COMMON if machine in _TABLES else {})
    return {number: site for table in tables for site, numbers in table.items() for number in numbers}


SITES = _by_number(platform.machine())


def wait_site(state: str, call: bytes, sites: dict[int, str] = SITES) -> str:
    """Return where a thread waits: futex timed sleep poll sock read write sync wait run disk other.

    `state`: a value of procfs.STATES; `call`: the text of its `syscall` file; `sites`: numbers to names.
    """
    if state == "uninterruptible":
        return "disk"
    word = call.split()
    if state == "running" or not word or word[0] == b"running":
        return "run"
    try:
        number, arguments = int(word[0]), [int(text, 16) for text in word[1:]]
        site = sites.get(number, "other")
        if site in _TIMEOUT:
            return "timed" if arguments[_TIMEOUT[site]] else "futex"
        if site == "select":  # select(0, ...) is how older Pythons sleep
            return "poll" if arguments[0] else "sleep"
    except (ValueError, IndexError):
        return "other"
    return site


def census(pids: Iterable[int], without: Collection[int] = ()) -> dict[str, int] | None:
    """Return how many threads of the processes wait at each site, "driver": of a GPU; None if the kernel refuses.

    `without`: numbers of threads that do not count.
    """
    found: Counter[str] = Counter()
    left, skipped = THREADS_MAX, {str(thread) for thread in without}
    for pid in pids:
        threads = [thread for thread in procfs.threads(pid)[:left] if thread not in skipped]
        left -= len(threads)
        sites = [_site(pid, thread) for thread in threads]
        if None in sites:
            return None
        found.update(site for site in sites if site)
    return dict(found) or None


def main_site(pid: int) -> str | None:
    """Return where the main thread of a process waits, as wait_site returns it; None if that is not known."""
    return _site(pid, str(pid)) or None


def _site(pid: int, thread: str) -> str | None:
    stat = procfs.stat(pid, thread)
    if stat is None or stat.state in ("zombie", "gone") or stat.name.startswith(SERVANTS):
        return ""  # it ended while we looked, or does not count
    call = procfs.slurp(f"/proc/{pid}/task/{thread}/syscall", 256)
    if call is None and os.path.exists(f"/proc/{pid}/task/{thread}"):  # noqa: PTH110 - one call, no object
        return None
    site = wait_site(stat.state, call or b"")
    return "driver" if site in OF_DRIVER and stat.name.startswith(DRIVER) else site


_REMOTE, _STATE, _INODE, _ESTABLISHED = 2, 3, 9, "01"  # columns of proc_net(5), and one value of the state
_MOUNT_POINT = 4  # column of proc_pid_mountinfo(5)
_V4_DIGITS, _MAPPED = 8, "0000000000000000FFFF0000"  # an IPv4 address within IPv6: RFC 4291, 2.5.5.2
_LOOPBACK = "00000000000000000000000001000000"  # ::1
NETWORK_FILES = ("nfs", "cifs", "smb", "ceph", "gluster", "lustre", "beegfs", "afs", "9p", "fuse.")


def is_remote(pids: Iterable[int]) -> bool | None:
    """Return whether the processes hold a connection to another host, or files of a network mount.

    Only links are read, never what they point to: a dead file server must not hang us.  None: unreadable.
    """
    known = False
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")[:FILES_MAX]  # noqa: PTH208 - no object for each
        except OSError:
            continue
        known = True
        links = []
        for name in names:
            with contextlib.suppress(OSError):  # closed since
                links.append(os.readlink(f"/proc/{pid}/fd/{name}"))  # noqa: PTH115 - a thousand of them
        sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
        files = ("tcp", "tcp6") if sockets else ()
        tables = [procfs.slurp(f"/proc/{pid}/net/{file}", 1 << 20) or b"" for file in files]
        if any(sockets & remote_sockets(table) for table in tables):
            return True
        mounts = network_mounts(procfs.slurp(f"/proc/{pid}/mountinfo", 1 << 18) or b"")
        if any(link.startswith(f"{mount}/") for mount in mounts for link in links):
            return True
    return False if known else None


def remote_sockets(table: bytes) -> set[str]:
    """Return the inodes of established connections to other hosts in a /proc/net/tcp or tcp6, proc_net(5)."""
    found = set()
    for line in table.decode("ascii", "replace").splitlines()[1:]:
        row = line.split()
        if len(row) <= _INODE or row[_STATE] != _ESTABLISHED:
            continue
        host = row[_REMOTE].partition(":")[0]  # hexadecimal, every 32-bit word in the host's byte order
        is_v4 = len(host) == _V4_DIGITS or host.startswith(_MAPPED)
        is_loopback = host.endswith("7F") if is_v4 else host == _LOOPBACK
        if not is_loopback:
            found.add(row[_INODE])
    return found


def network_mounts(text: bytes) -> list[str]:
    """Return the mount points of network file systems in a /proc/PID/mountinfo (proc_pid_mountinfo(5))."""
    found = []
    for line in text.decode(errors="replace").splitlines():
        head, _, tail = line.partition(" - ")
        fields = head.split()
        if tail.startswith(NETWORK_FILES) and len(fields) > _MOUNT_POINT:
            found.append(fields[_MOUNT_POINT].rstrip("/"))
    return found

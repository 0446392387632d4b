"""/proc as values: one process' files, parsed.  Field numbers are those of proc_pid_stat(5).

Reads with bare descriptors, because a tree of ten processes is read every second.  cmdline and smaps are not
touched here: they take the process' memory lock and block when it is stuck in the kernel.
This module must not keep anything between two calls.
"""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from stallguard.core.text import whole_number

TICKS = os.sysconf("SC_CLK_TCK")  # of utime and stime, a second
PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes
_FIELDS = 22  # that are used of those after the name
_START_CODE, _START_STACK = 23, 25  # the same, counted from 0: fields 26 and 28
PF_EXITING = 0x4  # include/linux/sched.h
STATES = {
    "R": "running", "S": "sleeping", "I": "sleeping", "D": "uninterruptible", "T": "stopped", "t": "stopped",
    "Z": "zombie", "X": "gone",
}  # fmt: skip


class Stat(NamedTuple):
    """One line of /proc/PID/stat; times in seconds, `start` in ticks since boot, `rss` in bytes.

    `cpu`, `system` and the faults include children that were waited for.
    """

    name: str
    state: str
    parent: int
    session: int
    minor_faults: int
    major_faults: int
    own_cpu: float
    cpu: float
    system: float
    nice: int
    threads: int
    start: int
    rss: int


def slurp(path: str, size: int = 4096) -> bytes | None:
    """Return up to `size` bytes of a small file, or None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, size)
    except OSError:  # ESRCH: the process ended between open and read
        return None
    finally:
        os.close(fd)


def number(path: str) -> int | None:
    """Return the number that a file holds; None if it holds another word, such as "max", or cannot be read."""
    return whole_number((slurp(path, 64) or b"").strip())


def parse_stat(line: bytes) -> Stat | None:
    """Return a stat line as values; None if it is not one.  The name may hold spaces and parentheses."""
    begin, end = line.find(b"("), line.rfind(b")")
    field = line[end + 2 :].split()
    if begin < 0 or end < begin or len(field) < _FIELDS:
        return None
    try:
        number = [int(text) for text in field[1:_FIELDS]]
    except ValueError:
        return None
    if any(abs(one) > 1 << 64 for one in number):
        return None
    letter = field[0].decode(errors="replace")
    exiting = number[5] & PF_EXITING and letter != "Z"
    own = (number[10] + number[11]) / TICKS
    return Stat(
        name=line[begin + 1 : end].decode(errors="replace"),
        state="exiting" if exiting else STATES.get(letter, "running"),
        parent=number[0],
        session=number[2],
        minor_faults=number[6] + number[7],
        major_faults=number[8] + number[9],
        own_cpu=own,
        cpu=own + (number[12] + number[13]) / TICKS,
        system=(number[11] + number[13]) / TICKS,
        nice=number[15],
        threads=number[16],
        start=number[18],
        rss=number[20] * PAGE,
    )


def program_image(line: bytes) -> str | None:
    """Return where the code and the stack of a process begin, of its stat line: both change with the program.

    The kernel places them at random at each execve(2).  If that is switched off (setarch -R), the stack still begins
    elsewhere if arguments or environment have another length.  Both are 0 for a process that ends, and the stack is 0
    for one of another user (fs/proc/array.c).
    """
    field = line[line.rfind(b")") + 2 :].split()
    if len(field) <= _START_STACK or field[_START_STACK] == b"0":
        return None
    return f"{field[_START_CODE].decode('ascii', 'replace')}-{field[_START_STACK].decode('ascii', 'replace')}"


def stat(pid: int, thread: str = "") -> Stat | None:
    """Return the stat line of a process, or of a thread of it; None if it is gone."""
    line = slurp(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat")
    return parse_stat(line) if line else None


def catches(pid: int, number: int) -> bool | None:
    """Return whether a process has a handler for a signal; None if it is gone, or another user's."""
    lines = (slurp(f"/proc/{pid}/status") or b"").splitlines()
    masks = [line.split()[1] for line in lines if line.startswith(b"SigCgt:")]
    return bool(int(masks[0], 16) >> (number - 1) & 1) if masks else None


def all_pids() -> list[int]:
    """Return the ids of all processes that this user may see."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - hundreds
    return []


def threads(pid: int) -> list[str]:
    """Return the ids of the process' threads, as text; empty if it is gone."""
    with contextlib.suppress(OSError):
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - hundreds
    return []


def parse_io(text: bytes) -> tuple[int, int] | None:
    """Return (bytes through system calls, bytes from and to the disk) of a /proc/PID/io; None if cut."""
    words = text.split()
    found = dict(zip(words[::2], words[1::2], strict=False))
    try:
        passed = int(found[b"rchar:"]) + int(found[b"wchar:"])
        return passed, int(found[b"read_bytes:"]) + int(found[b"write_bytes:"])
    except (KeyError, ValueError):
        return None


def io(pid: int) -> tuple[int, int] | None:
    """Return (bytes through system calls, bytes from and to the disk), children that ended included."""
    text = slurp(f"/proc/{pid}/io")
    return parse_io(text) if text else None


def sizes(text: bytes) -> dict[str, int]:
    """Return the `Name:  123 kB` lines of meminfo, status or smaps_rollup, in bytes; bare numbers stay."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(b":")
        number, _, unit = value.strip().partition(b" ")
        count = whole_number(number)
        if count is not None:  # a line of another shape is not a number of ours
            found[name.strip().decode(errors="replace")] = count * (1024 if unit == b"kB" else 1)
    return found


def size(text: bytes, name: bytes) -> int | None:
    """Return the one line `name` of those that `sizes` returns; None if it is missing."""
    _, found, rest = (b"\n" + text).partition(b"\n" + name + b":")
    return sizes(name + b":" + rest.partition(b"\n")[0]).get(name.decode()) if found else None


def schedstat(pid: int, thread: str) -> tuple[int, int] | None:
    """Return (nanoseconds runnable but not running, times it was put on a core) of a thread.

    Source: Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    """
    text = slurp(f"/proc/{pid}/task/{thread}/schedstat", 128)
    try:
        _, waited, times = (text or b"").split()
        return int(waited), int(times)
    except ValueError:
        return None

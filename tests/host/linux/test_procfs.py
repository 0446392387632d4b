"""The files of /proc, parsed."""

from __future__ import annotations

import sys

import pytest

from stallguard.host.linux import procfs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_a_process_that_ends_or_is_another_users_has_no_image_that_can_be_compared() -> None:
    line = b"7 (a b) S " + b" ".join(b"%d" % number for number in range(4, 53))
    assert procfs.program_image(line) == "26-28"
    assert procfs.program_image(line.replace(b" 28 ", b" 0 ")) is None
    assert procfs.program_image(b"") is None


def test_a_stat_line_with_a_hostile_name_is_read() -> None:
    line = b"7 (a) b (c) ) R 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 1234 100 10 x y\n"
    stat = procfs.parse_stat(line)
    assert stat is not None
    assert (stat.name, stat.state, stat.parent) == ("a) b (c) ", "running", 1)
    assert (stat.threads, stat.start) == (9, 1234)
    assert stat.cpu == (5 + 6 + 7 + 8) / procfs.TICKS
    assert stat.system == (6 + 8) / procfs.TICKS
    assert stat.minor_faults == 3


@pytest.mark.parametrize("line", [b"", b"7", b"7 (x) R 1 2", b"7 (x R 1", b") (", b"7 (x) R " + b"z " * 30])
def test_a_torn_stat_line_is_no_reading(line: bytes) -> None:
    assert procfs.parse_stat(line) is None


def test_sizes_are_bytes_and_counts_stay_counts() -> None:
    text = b"VmRSS:\t    1764 kB\nThreads:\t9\nName:\tcat\n"
    assert procfs.sizes(text) == {"VmRSS": 1764 * 1024, "Threads": 9}

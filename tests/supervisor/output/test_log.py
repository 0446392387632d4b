"""output.log is bounded, continued, and honest about what it lacks."""

from __future__ import annotations

import resource

from stallguard.storage import rotation
from stallguard.supervisor.output.log import OutputLog


def test_the_log_keeps_its_beginning_and_its_end_and_is_bounded(tmp_path):
    log = OutputLog(tmp_path / "output.log", print, part_max=1000)
    for number in range(1000):
        log.write(b"%09d\n" % number)
    log.close()
    assert len(rotation.numbers(tmp_path / "output.log")) == 2
    assert (tmp_path / "output.1.log").read_bytes().startswith(b"000000000\n")
    assert sum(path.stat().st_size for path in tmp_path.glob("output*.log")) <= 3 * 1010
    newest = rotation.numbers(tmp_path / "output.log")[-1]
    tail = (tmp_path / f"output.{newest}.log").read_bytes()
    tail += (tmp_path / "output.log").read_bytes() if (tmp_path / "output.log").exists() else b""
    assert tail.endswith(b"000000999\n")


def test_a_log_is_continued_not_overwritten(tmp_path):
    for word in (b"one\n", b"two\n"):
        log = OutputLog(tmp_path / "output.log", print)
        log.write(word)
        log.close()
    assert (tmp_path / "output.log").read_bytes() == b"one\ntwo\n"


def test_a_log_that_another_program_renamed_goes_on_at_its_path(tmp_path):
    path, seconds = tmp_path / "output.log", iter(range(0, 100, 2))
    log = OutputLog(path, print, now=lambda: float(next(seconds)))
    log.write(b"one\n")
    path.rename(tmp_path / "output.log.1")
    log.write(b"two\n")
    path.unlink()
    log.write(b"three\n")
    log.close()
    assert (tmp_path / "output.log.1").read_bytes() == b"one\n"
    assert path.read_bytes() == b"three\n"


def test_a_full_disk_makes_a_marked_hole_and_one_complaint(tmp_path):
    troubles = []
    path = tmp_path / "output.log"
    log = OutputLog(path, troubles.append)
    log.write(b"before\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        log.write(b"lost\n")
        log.write(b"lost too\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.write(b"after\n")
    log.close()
    assert path.read_bytes() == b"before\n\n[stallguard: 14 bytes could not be written here]\nafter\n"
    assert len(troubles) == 1
    assert "File too large" in troubles[0]

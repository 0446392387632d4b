"""output.log is bounded, continued, honest about what it lacks, and never in the way of the training."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess

import pytest

from stallguard.storage import rotation
from stallguard.supervisor.output_log import MOST, OutputFile, OutputLog


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


@pytest.fixture
def filed(tmp_path):
    """A function that opens output.log; closed afterwards."""
    opened = []

    def start(part_max: int = 10_000, tap=None):
        shown, skipped = bytearray(), []

        def show(data, before):
            shown.extend(data)
            skipped.append(before)

        trouble: list[str] = []
        output = OutputFile(tmp_path / "output.log", trouble.append, part_max, tap or show)
        output.shown, output.skipped, output.troubles = shown, skipped, trouble
        opened.append(output)
        return output

    yield start
    for output in opened:
        output.finish()


def test_what_is_written_is_shown_once_and_in_order(filed):
    output = filed()
    os.write(output.stdout, b"one\n")
    output.settle(1)
    os.write(output.stderr, b"two\n")
    output.finish()

    assert bytes(output.shown) == b"one\ntwo\n"


def test_a_script_can_print_on_a_disk_that_is_full(filed, tmp_path):
    """As a job's training does: unbuffered, into the file itself."""
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        output = filed()
        os.write(output.stdout, b"begun\n")
        with (tmp_path / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
            while ballast.write(bytes(4096)):
                pass
        for number in range(1000):
            os.write(output.stdout, b"epoch %d, loss 0.0123, accuracy 0.987\n" % number)
        assert output.settle(1)
        assert output.shown.endswith(b"epoch 999, loss 0.0123, accuracy 0.987\n")
        output.finish()
    finally:
        subprocess.run(["umount", "--lazy", tmp_path], check=False)


def test_what_an_earlier_stallguard_saw_is_not_shown_again(filed, tmp_path):
    (tmp_path / "output.log").write_bytes(b"old\n")
    output = filed()
    os.write(output.stdout, b"new\n")
    output.finish()

    assert bytes(output.shown) == b"new\n"
    assert (tmp_path / "output.log").read_bytes() == b"old\nnew\n"


def test_the_file_turns_in_parts_while_the_training_holds_it_open(filed, tmp_path):
    output = filed(part_max=100)
    training = os.dup(output.stdout)
    try:
        for number in range(6):
            os.write(training, b"%d" % number * 100)
            output.settle(1)
    finally:
        os.close(training)
    output.finish()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["output.1.log", "output.6.log", "output.log"]
    assert (tmp_path / "output.1.log").read_bytes() == b"0" * 100
    assert bytes(output.shown) == b"".join(b"%d" % number * 100 for number in range(6))


def test_a_flood_is_skipped_rather_than_chewed(filed):
    output = filed(part_max=10 * MOST)
    os.write(output.stdout, b"a" * 100)
    os.ftruncate(output.stdout, 2 * MOST)
    output.settle(1)
    assert len(output.shown) <= MOST
    assert len(output.shown) + sum(output.skipped) == 2 * MOST


def test_a_disk_that_refuses_is_reported_once(filed, tmp_path, monkeypatch):
    output = filed(part_max=10)
    monkeypatch.setattr("stallguard.supervisor.output_log.shutil.copyfile", _full)
    for _ in range(3):
        os.write(output.stdout, b"x" * 20)
        output.settle(1)
    assert len(output.troubles) == 1
    assert "No space left" in output.troubles[0]


def _full(*_paths):
    raise OSError(28, "No space left on device")

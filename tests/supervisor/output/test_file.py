"""Output that goes to a file: shown to the reader, kept small, and never in the training's way."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

from stallguard.supervisor.output.file import MOST, OutputFile


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
    monkeypatch.setattr("stallguard.supervisor.output.file.shutil.copyfile", _full)
    for _ in range(3):
        os.write(output.stdout, b"x" * 20)
        output.settle(1)
    assert len(output.troubles) == 1
    assert "No space left" in output.troubles[0]


def _full(*_paths):
    raise OSError(28, "No space left on device")

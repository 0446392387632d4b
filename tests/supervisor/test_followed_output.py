"""What a process that stallguard did not start prints to its file is followed, and the file is never changed."""

from __future__ import annotations

import os

import pytest

from stallguard.supervisor import followed_output
from stallguard.supervisor.followed_output import FollowedOutput
from stallguard.supervisor.output_log import OutputLog


@pytest.fixture
def follow(tmp_path, monkeypatch):
    """Return a function that follows a file; nothing looks at it but `settle`."""
    monkeypatch.setattr(followed_output, "LOOK", 3600.0)
    made, heard, said = [], [], []

    def begin(source):
        log = OutputLog(tmp_path / "output.log", said.append)
        one = FollowedOutput(source, log, lambda data, skipped: heard.append((data, skipped)), said.append)
        made.append(one)
        return one, heard, said

    yield begin
    for one in made:
        one.finish()


def test_what_comes_is_searched_and_copied_and_of_what_was_before_the_end_is_copied_alone(follow, tmp_path):
    source = tmp_path / "train.log"
    source.write_bytes(b"x" * followed_output.BEFORE + b"an old error\n")
    one, heard, _ = follow(source)
    with source.open("ab") as file:
        file.write(b"a new error\n")
    one.settle(0)

    assert heard == [(b"a new error\n", 0)]
    kept = (tmp_path / "output.log").read_bytes()
    assert kept.endswith(b"xan old error\na new error\n")
    assert len(kept) == followed_output.BEFORE + len(b"a new error\n")
    assert source.read_bytes().endswith(b"an old error\na new error\n")


def test_a_log_that_is_renamed_is_followed_and_one_that_is_emptied_is_read_from_its_beginning(follow, tmp_path):
    source = tmp_path / "train.log"
    source.write_bytes(b"one\n")
    one, heard, _ = follow(source)
    with source.open("ab") as file:
        source.rename(tmp_path / "train.log.1")
        file.write(b"two\n")
        file.flush()
        one.settle(0)
        file.truncate(0)
        file.write(b"3\n")
    one.finish()

    assert heard == [(b"two\n", 0), (b"3\n", 0)]


def test_without_a_file_there_is_no_output_and_no_error(follow, tmp_path):
    one, heard, said = follow(None)
    one.settle(0)

    assert one.finish()
    assert (heard, said) == ([], [])
    assert not (tmp_path / "output.log").exists()


def test_a_file_that_cannot_be_read_is_said_once(follow, tmp_path):
    one, _, said = follow(tmp_path / "gone.log")
    one.settle(0)
    one.finish()

    assert said == [f"the output of the process cannot be read: {tmp_path / 'gone.log'}: No such file or directory"]


def test_of_a_flood_the_end_is_read_and_the_rest_is_said_to_be_skipped(follow, tmp_path, monkeypatch):
    monkeypatch.setattr(followed_output, "MOST", 4)
    source = tmp_path / "train.log"
    source.write_bytes(b"")
    one, heard, _ = follow(source)
    source.write_bytes(b"0123456789")
    one.settle(0)

    assert heard == [(b"6789", 6)]


def test_a_pipe_is_left_to_its_own_reader(follow, tmp_path):
    """Opened, it would release the writer who waits for a reader, and take what another one waits for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    one, heard, said = follow(pipe)
    with pytest.raises(OSError, match="No such device"):  # it has no reader
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)

    assert one.finish()
    assert (heard, said) == ([], [f"the output of the process cannot be read: {pipe} is no regular file"])

"""Which crash ended an attempt, from the files that its processes left and from what it printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallguard.collectors import crash_stacks

HEAD = "Fatal Python error: Segmentation fault\n\n"
ENDED = 10_000.0


def dump(function: str, line: int = 31, file: str = "/there/train.py") -> str:
    return (
        f'{HEAD}Thread 0x1 (most recent call first):\n  File "/there/train.py", line 9 in other\n\n'
        f'Current thread 0x2 (most recent call first):\n  File "/usr/lib/python3.11/ctypes/x.py", line 5 in string_at\n'
        f'  File "{file}", line {line} in {function}\n  File "/there/train.py", line 50 in <module>\n'
    )


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    return tmp_path


def left(pages: Path, name: str, text: str, ago: float = 1.0) -> None:
    (pages / name).write_text(text)
    os.utime(pages / name, (ENDED - ago, ENDED - ago))


def found(pages: Path, pid: int = 7, printed: str = "") -> tuple[str, str] | None:
    crash = crash_stacks.find(pages, pid, ENDED, printed, "/there")
    return crash and (crash.at, crash.of)


def test_the_attempts_own_process_comes_first(pages):
    left(pages, "7.crash", dump("mine"))
    left(pages, "8.crash", dump("other"), ago=5.0)
    left(pages, "7.workers.crash", dump("worker"), ago=9.0)

    assert found(pages) == ("train.py:31 in mine", "")


def test_else_the_process_that_crashed_first_and_workers_last(pages):
    left(pages, "8.crash", dump("late"), ago=1.0)
    left(pages, "9.crash", dump("early"), ago=3.0)
    left(pages, "9.workers.crash", dump("worker"), ago=5.0)

    assert found(pages) == ("train.py:31 in early", "process 9")
    (pages / "9.page").touch()
    assert found(pages) == ("train.py:31 in early", ""), "a process with a training library is the training"
    (pages / "8.crash").unlink()
    (pages / "9.crash").unlink()
    assert found(pages) == ("train.py:31 in worker", "worker")


def test_a_crash_of_another_process_long_before_is_not_the_end(pages):
    left(pages, "8.workers.crash", dump("worker"), ago=crash_stacks.NEAR + 1)
    assert found(pages) is None
    left(pages, "7.crash", dump("mine"), ago=crash_stacks.NEAR + 1)
    assert found(pages) is not None, "its own is, with any clock"


def test_the_last_crash_in_a_file_counts_and_empty_or_strange_files_do_not(pages):
    left(pages, "7.crash", dump("before") + dump("after"))
    assert found(pages) == ("train.py:31 in after", "")
    for text in ("", "no crash", "\0" * 100):
        left(pages, "7.crash", text)
        assert found(pages) is None
    left(pages, "x.crash", dump("strange"))
    assert found(pages) is None
    assert crash_stacks.find(pages / "gone", 7, ENDED, "", "") is None


def test_a_thread_of_native_code_has_no_line(pages):
    left(pages, "7.crash", HEAD + 'Thread 0x1 (most recent call first):\n  File "/there/train.py", line 9 in other\n')
    assert found(pages) == ("", "")


def test_what_the_program_has_written_elsewhere_is_read_there(pages, tmp_path):
    own = tmp_path / "own file"
    own.write_text(dump("before"))
    size = own.stat().st_size
    left(pages, "7.crash", f"the program has them written to {size} {own}\n")
    assert found(pages) is None, "what was there before is none of this run"
    with own.open("a") as file:
        file.write(dump("mine"))
    assert found(pages) == ("train.py:31 in mine", "")


def test_a_program_that_prints_its_crash_is_read_unless_its_own_file_has_it(pages):
    printed = "Epoch 1\r\n" + dump("printed").replace("\n", "\r\n")
    left(pages, "8.workers.crash", dump("worker"))

    assert found(pages, printed=printed) == ("train.py:31 in printed", "")
    left(pages, "7.crash", dump("mine"))
    assert found(pages, printed=printed) == ("train.py:31 in mine", "")


def test_the_evidence_is_redacted_and_the_next_attempt_begins_without_files(pages, tmp_path):
    left(pages, "7.crash", dump("mine"))
    (pages / "7.stacks").touch()
    crash = crash_stacks.find(pages, 7, ENDED, "", "/there")
    assert crash is not None
    crash_stacks.keep(crash, tmp_path / "incidents" / "crash-1", lambda text: text.replace("/there", "~"))
    crash_stacks.clear(pages)

    assert 'File "~/train.py", line 31 in mine' in (tmp_path / "incidents/crash-1/stacks.txt").read_text()
    assert [path.name for path in pages.glob("7*")] == ["7.stacks"]

"""A walk leaves a zip, and a zip becomes tests: whoever reads it has no such machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def zipped(tmp_path):
    """The zip of a walk of a Mac whose user is ada."""
    from mac import archive
    from mac.recordings import Mac, Recording
    from mac.table import UNASKED, Row, judged

    rows = [
        judged("gpu", holds=True, figure="3 %", means="the sensor works"),
        judged("kill -9", holds=False, figure="no process", means="it comes back", otherwise="it is lost"),
        Row("sleep", UNASKED, means="it has not slept"),
    ]
    tools = [
        Recording("ps.txt", "ps -M -p 1", 0, 0.12, "ada  12  S"),
        Recording("log.txt", "log show", 77, 1.0, "refused"),
    ]
    words = [Recording("001-doctor.txt", "stallguard doctor", 0, 2.0, "good")]
    files = archive.contents(
        Mac("26.1", "25B78", "Apple M4"), "2026-11-22", rows, tools, words, {"tracebacks.txt": "gpu"}
    )
    path = tmp_path / "walk.zip"
    archive.write(path, {name: text.replace("ada", "user") for name, text in files.items()})
    return path


def test_the_zip_has_a_row_for_each_check_and_a_code_for_each_command(zipped):
    with zipfile.ZipFile(zipped) as made:
        assert sorted(made.namelist()) == [
            "commands.json", "machine.json", "rows.json", "stallguard/001-doctor.txt", "tools/log.txt", "tools/ps.txt",
            "tracebacks.txt",
        ]  # fmt: skip
        rows, commands = json.loads(made.read("rows.json")), json.loads(made.read("commands.json"))
        assert made.read("tools/ps.txt") == b"user  12  S"
    assert [(row["check"], row["expected"], row["seen"], row["verdict"]) for row in rows] == [
        ("gpu", "the sensor works", "3 %", "held"),
        ("kill -9", "it comes back", "no process", "failed"),
        ("sleep", "it has not slept", "", "unknown"),
    ]
    assert [(one["file"], one["exit_code"]) for one in commands] == [
        ("tools/ps.txt", 0), ("tools/log.txt", 77), ("stallguard/001-doctor.txt", 0),
    ]  # fmt: skip


def test_a_zip_becomes_recordings_with_their_source_and_failed_rows_become_tests(zipped, tmp_path):
    from mac import archive, taken_over

    data, tests = tmp_path / "recordings", tmp_path / "tests"
    data.mkdir(), tests.mkdir()
    for _ in range(2):  # a second time, it takes the place of the first
        said = taken_over.take_over(archive.read(zipped), data, tests)

    assert (data / "26.1-25b78-m4" / "ps.txt").read_text() == "user  12  S"
    sources = (data / "SOURCES.md").read_text()
    assert sources.count("macOS 26.1 (25B78), Apple M4, 2026-11-22, by scripts/live") == 1
    assert "| log.txt | `log show` | 77 | 1.00 |" in sources
    (failed,) = json.loads((tests / "failed_rows.json").read_text())
    assert (failed["check"], failed["seen"], failed["machine"]) == ("kill -9", "no process", "26.1-25b78-m4")
    assert "1 failed rows" in said[1]


@pytest.mark.costly
def test_a_failed_row_is_a_test_that_is_skipped_with_what_was_seen(zipped, tmp_path):
    from mac import archive, taken_over

    (tmp_path / "recordings").mkdir()
    taken_over.take_over(archive.read(zipped), tmp_path / "recordings", tmp_path)
    (tmp_path / "test_failed_rows.py").write_text((ROOT / "tests/live/test_failed_rows.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "-c", os.devnull, str(tmp_path)],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip

    assert "1 skipped" in done.stdout, done.stdout
    assert "kill -9 did not hold on 26.1-25b78-m4 (2026-11-22): no process, expected: it comes back" in done.stdout


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"rows.json": "[]"}, "KeyError"),
        ({"rows.json": "{", "machine.json": "{}", "commands.json": "[]"}, "JSONDecodeError"),
        ({"../../etc/passwd": "x"}, "a strange name"),
        ({"/etc/passwd": "x"}, "a strange name"),
        ({"tools/..": "x"}, "a strange name"),
        ({"a\\..\\b": "x"}, "a strange name"),
        ({"rows.json": "[" * 100_000, "machine.json": "{}", "commands.json": "[]"}, "RecursionError"),
        ({"rows.json": "[]", "machine.json": "[]", "commands.json": "[]"}, "TypeError"),
        ({"rows.json": "[]", "machine.json": "{}", "commands.json": '[{"file": 3}]'}, "AttributeError"),
        ({f"tools/{number}": "" for number in range(2001)}, "larger than any walk's"),
    ],
)
def test_a_file_that_is_no_zip_of_a_walk_is_refused_in_a_sentence(tmp_path, files, why):
    from mac import archive

    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(name, text)
    with pytest.raises(archive.Damaged, match=f"is no zip of scripts/live: .*{why}"):
        archive.read(path)


def test_a_zip_that_grows_beyond_all_walks_is_refused_before_it_is_unpacked(tmp_path):
    from mac import archive

    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name in ("rows.json", "machine.json"):
            made.writestr(name, b"0" * (archive.MOST_BYTES // 2 + 1))
    with pytest.raises(archive.Damaged, match="larger than any walk's"):
        archive.read(path)


@pytest.mark.parametrize("place", range(0, 900, 7))
def test_a_zip_with_a_damaged_byte_is_read_or_refused_as_damaged(zipped, tmp_path, place):
    from mac import archive

    data = bytearray(zipped.read_bytes())
    data[place % len(data)] ^= 0xFF
    (tmp_path / "damaged.zip").write_bytes(data)
    with contextlib.suppress(archive.Damaged):
        archive.read(tmp_path / "damaged.zip")


def test_words_of_a_foreign_zip_make_no_further_lines_and_can_be_written(tmp_path):
    from mac import archive, taken_over

    row = {"check": "a\n## b", "expected": "", "seen": "\ud800", "verdict": "failed", "means": ""}
    machine = {"version": "1\n## x/", "build": "\ud800", "chip": "", "day": "x"}
    files = {"rows.json": json.dumps([row]), "commands.json": "[]", "machine.json": json.dumps(machine)}
    archive.write(tmp_path / "odd.zip", files)
    walked = archive.read(tmp_path / "odd.zip")
    assert (walked.rows[0].check, walked.rows[0].figure, walked.mac.version) == ("a ## b", "?", "1 ## x/")
    (tmp_path / "data").mkdir()
    taken_over.take_over(walked, tmp_path / "data", tmp_path)


def test_no_name_of_a_machine_leads_out_of_the_recordings():
    from mac.recordings import Mac

    assert Mac("..", "", "").folder == Mac("/", "..", "-").folder == "unknown"
    assert "/" not in Mac("../../x", "b", "c").folder


@pytest.mark.whole
def test_the_command_makes_a_zip_here_and_refuses_what_is_none(tmp_path):
    walk = [sys.executable, str(ROOT / "scripts" / "walks" / "walk.py")]
    env = {**os.environ, "HOME": str(tmp_path), "STALLGUARD_HOME": str(tmp_path / "kept")}

    def run(*words):
        return subprocess.run([*walk, *words], capture_output=True, text=True, check=False, env=env, cwd=tmp_path)

    made = run("--only", "gpu", "--only", "terminal", "--zip", "here.zip")
    assert made.returncode == 0, made.stdout + made.stderr
    with zipfile.ZipFile(tmp_path / "here.zip") as zipped:
        rows = json.loads(zipped.read("rows.json"))
        text = "".join(zipped.read(name).decode() for name in zipped.namelist())
        assert any(name.startswith("journals/") for name in zipped.namelist())
    assert "journals/ (" in made.stdout, "the contents are listed"
    assert {row["verdict"] for row in rows} <= {"held", "unknown"}
    assert str(tmp_path) not in text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".stallguard-walk")] == []

    (tmp_path / "other.zip").write_text("no zip")
    refused = run("--import", "other.zip")
    assert refused.returncode == 2
    assert "other.zip is no zip of scripts/live" in refused.stdout

"""`stallguard logs`: the last lines, wherever they are kept, and those that come, wherever they will be kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from stallguard.cli import logs
from stallguard.core.actions import Announce
from stallguard.storage import journal, paths, run_files
from stallguard.storage.journal import Journal
from stallguard.supervisor.notices import journal_line
from tests.storage.lines import encoded


def begun(home: Path, supervisor: run_files.Identity) -> paths.RunDir:
    made = paths.new_run("train", "20260101-000000Z")
    run_files.keep_asked(made, run_files.RunRequest(1, made.id, ["x"], ["x"], str(home), run_files.utc(), supervisor))
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> paths.RunDir:
    """A run whose journal has compressed parts, and lines that would steer a terminal."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    made = begun(tmp_path, run_files.Identity(1, 0.0))
    written = Journal(made.journal, print, most=40_000)
    for number in range(100):
        written.write(float(number), *journal_line(Announce("stallguard.trouble", {"text": f"line {number} \x1b[2J"})))
    written.close()
    assert [part for part in journal.parts(made.journal) if part.suffix == ".gz"]
    return made


def test_the_last_lines_reach_into_compressed_parts(run: paths.RunDir) -> None:
    shown = CliRunner().invoke(logs.command, ["-n", "95"]).output.splitlines()

    assert len(shown) == 95
    assert "line 5 " in shown[0]
    assert "line 99 " in shown[-1]
    assert "\x1b" not in "".join(shown)


def test_times_are_those_of_the_users_clock_with_the_day_after_midnight(
    run: paths.RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        for part in journal.parts(run.journal):
            part.unlink()
        run.journal.write_bytes(
            b"".join(
                encoded(Announce("stallguard.trouble", {"text": "so"}), utc, at)
                for utc, at in (("2026-01-01T21:30:00Z", 1.0), ("2026-01-01T22:30:00Z", 2.0))
            )
        )
        shown = CliRunner().invoke(logs.command, []).output.splitlines()
        assert shown == ["23:30:00  so", "Fri 00:30:00  so"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_lines_of_json_stay_as_they_are(run: paths.RunDir) -> None:
    shown = CliRunner().invoke(logs.command, ["-n", "95", "--json"]).output.splitlines()

    assert len(shown) == 95
    assert all(line.startswith('{"time":') for line in shown)


def test_following_goes_on_in_the_next_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    made = begun(tmp_path, run_files.identity(os.getpid()))
    written = Journal(made.journal, print, most=40_000)
    written.write(0.0, {"event": "test.counted", "number": 0})
    chunks = logs._chunks(made, made.journal, follow=True)
    seen = [next(chunks)]
    for number in range(1, 150):
        written.write(float(number), {"event": "test.counted", "number": number})
        if number % 20 == 0:
            seen.append(next(chunks))
    written.close()
    run_files.conclude(made, run_files.Outcome(1, 0, "", run_files.utc(), 1.0, 0, 0, 1, 0.0))
    seen += chunks

    found = map(msgspec.json.decode, b"".join(seen).splitlines())
    assert [line["number"] for line in found] == list(range(150))
    assert len(journal.parts(made.journal)) > 1

"""`stallguard replay` tells what would have happened, to people and to machines."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from stallguard import journal, traces
from stallguard.cli.replay import command
from stallguard.errors import StallguardError

RECORDINGS = Path(__file__).parents[1] / "recordings" / "traces"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def told(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def trace(name: str) -> str:
    return str(RECORDINGS / f"{name}.jsonl")


def test_the_words_name_every_step_and_why():
    output = told(trace("stall_lock"))

    assert [line.split("would ")[1].split()[0] for line in output.splitlines()] == [
        "suspect",
        "call",
        "dump:",
        "restart:",
    ]
    assert "nothing in the process can wake its threads" in output


def test_a_healthy_training_gives_one_line():
    assert told(trace("lstm_small")).startswith("nothing: healthy all along")


def test_json_is_one_object_with_the_verdicts_to_be_scored():
    found = json.loads(told(trace("stall_sigstop"), "--json"))

    assert found["schema"] == 1
    assert [(v["step"], v["cause"]) for v in found["verdicts"]] == [
        ("suspect", "stopped"),
        ("stalled", "stopped"),
    ]
    assert found["verdicts"][1]["at"] == pytest.approx(6.525 + 5, abs=0.5)


def test_two_settings_are_shown_side_by_side():
    output = told(trace("stall_lock"), "--compare", "--set", "detector.patience=4")

    before, after = output.split("with detector.patience=4")
    assert "restart" in before
    assert "suspect" in after
    assert "restart" not in after


def test_compared_settings_are_two_results_in_json():
    found = json.loads(
        told(trace("stall_lock"), "--compare", "--set", "detector.rows.step.deadlock=15s", "--json")
    )

    assert [result["settings"] for result in found["compared"]] == [
        {},
        {"detector.rows.step.deadlock": "15s"},
    ]
    early, late = (
        [v["at"] for v in result["verdicts"] if v["step"] == "stalled"] for result in found["compared"]
    )
    assert late[0] - early[0] == pytest.approx(5.0, abs=0.6)


def test_a_mistyped_setting_is_answered_with_the_nearest_name():
    with pytest.raises(StallguardError) as error:
        told(trace("stall_lock"), "--set", "detector.patiance=2")

    assert "detector.patience" in " ".join(error.value.lines()[1:])


def test_a_journal_is_decided_again_like_a_trace(tmp_path):
    path = tmp_path / "journal.jsonl"
    lines = [
        {"schema": 1, "utc": "2026-01-01T00:00:00Z", "at": event.at, "kind": "event", "data": event}
        for event in traces.events(traces.read(Path(trace("stall_lock"))))
    ]
    path.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines) + b"\n")
    assert len(list(journal.events(path))) == len(lines)

    found = json.loads(told(str(path), "--json"))
    assert [v["step"] for v in found["verdicts"]] == ["suspect", "stalled"]


def test_what_is_not_there_is_refused_with_the_code_for_no_such_run(monkeypatch, tmp_path):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    with pytest.raises(StallguardError) as error:
        told("no-such-run")

    assert error.value.code == 3

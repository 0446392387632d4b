"""`stallguard debug replay` tells what would have happened, to people and to machines."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from detection import traces

from stallguard.cli.debug import replay as command
from stallguard.core.actions import Collect, Launch, Signal
from stallguard.core.events import Collected, Event, Exited, Heartbeat, Launched, ProcessLeft
from stallguard.errors import StallguardError
from stallguard.report.replay import moved
from tests.storage.lines import encoded

STALLED = 16.75  # seconds into the trace stall_lock at which it is called a stall
BEGUN = Launched(at=0.0, attempt=1, pid=7)
MIDNIGHT = "2026-01-01T00:00:00Z"
RECORDINGS = Path(__file__).parents[1] / "recordings" / "traces"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """No settings of whoever runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield
    monkeypatch.undo()
    time.tzset()


def announced(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def trained(name: str) -> list[Event]:
    """Return the events of the recorded training `name`."""
    return list(traces.events(traces.read(RECORDINGS / f"{name}.jsonl")))


@pytest.fixture
def trace(tmp_path: Path) -> Callable[[str], str]:
    """Write the journal of a recorded training, and return its path."""

    def write(name: str) -> str:
        path = tmp_path / "journal.jsonl"
        path.write_bytes(b"".join(encoded(event, MIDNIGHT, event.at) for event in (BEGUN, *trained(name))))
        return str(path)

    return write


def test_the_words_name_every_step_and_why(trace):
    output = announced(trace("stall_lock"))

    assert [line.split("would ")[1].split()[0] for line in output.splitlines()[1:]] == [
        "suspect",
        "call",
        "collect",
        "restart",
    ]
    assert "nothing in the process can wake them" in output
    assert "inside a training step" in output
    assert "  +0:00:" in output
    assert "STEP" not in output, "words of the detector's own"


def test_of_a_healthy_training_its_end_alone_is_shown(trace):
    assert [line.split("  ")[-1] for line in announced(trace("lstm_small")).splitlines()[1:]] == [
        "would end the run: exit code 0: the training is finished"
    ]


def test_a_training_without_an_end_and_without_a_stall_gives_one_line(tmp_path):
    path = recorded(tmp_path / "journal.jsonl", (0.0, BEGUN))

    assert announced(path).splitlines()[1].startswith("nothing: healthy all along")


def test_json_is_one_object_with_the_verdicts_to_be_scored(trace):
    found = json.loads(announced(trace("stall_sigstop"), "--json"))

    assert found["schema"] == 2
    assert found["began"] == "2026-01-01T00:00:00+00:00"
    assert [(v["step"], v["cause"]) for v in found["verdicts"]] == [("suspect", "stopped"), ("stalled", "stopped")]
    assert found["verdicts"][1]["at"] == pytest.approx(6.525 + 5, abs=0.5)


def test_two_settings_are_shown_side_by_side(trace):
    output = announced(trace("stall_lock"), "--compare", "--set", "detector.patience=4")

    before, after = output.split("with detector.patience=4")
    assert "restart" in before
    assert "suspect" in after
    assert "restart" not in after


def test_compared_settings_are_two_results_in_json(trace):
    found = json.loads(
        announced(trace("stall_lock"), "--compare", "--set", "detector.rows.step.deadlock=15s", "--json")
    )

    assert [result["settings"] for result in found["compared"]] == [{}, {"detector.rows.step.deadlock": "15s"}]
    early, late = ([v["at"] for v in result["verdicts"] if v["step"] == "stalled"] for result in found["compared"])
    assert late[0] - early[0] == pytest.approx(5.0, abs=0.6)


def test_a_mistyped_setting_is_answered_with_the_nearest_name(trace):
    with pytest.raises(StallguardError) as error:
        announced(trace("stall_lock"), "--set", "detector.patiance=2")

    assert "detector.patience" in " ".join(error.value.lines()[1:])


UPTIME, SECOND = 37_700.0, 1_767_225_600.0  # of the run's first line: of the machine, and since the epoch


def recorded(path: Path, *happened: tuple[float, object]) -> str:
    """Write a journal of (second, event or action) of a run that began at midnight, UTC, of a new year."""
    lines = []
    for second, what in happened:
        moment = dt.datetime.fromtimestamp(SECOND + second, dt.UTC).isoformat()
        data = moved(what, UPTIME) if isinstance(what, Event) else what
        lines.append(encoded(data, moment, UPTIME + second))
    path.write_bytes(b"".join(lines))
    return str(path)


@pytest.fixture
def night(tmp_path: Path) -> str:
    """A run that stalled, was found out after 10 s, and was started again 3 s later; it then went on for 5 s."""
    events = [event for event in trained("stall_lock") if event.at < STALLED + 2.0]
    again = [
        Heartbeat(
            at=STALLED + at,
            attempt=2,
            sent_at=STALLED + at,
            beats=int(at),
            beat_at=STALLED + at,
            progress_at=STALLED + at,
            changes=int(at),
            phase="between",
            trains=True,
            fits=1,
        )
        for at in (4, 5, 6, 7)
    ]
    happened = [
        (0.0, Launched(at=0.0, attempt=1, pid=7)),
        *((event.at, event) for event in events),
        (STALLED, Collect(incident=1, attempt=1)),
        (STALLED + 2.0, Collected(at=STALLED + 2.0, incident=1, seconds=2.0, where="train.py:12 in step")),
        (STALLED + 2.0, Signal(attempt=1, name="TERM")),
        (STALLED + 2.5, ProcessLeft(at=STALLED + 2.5, attempt=1, pid=0, how="vanished")),
        (STALLED + 2.5, Exited(at=STALLED + 2.5, attempt=1, code=-15)),
        (STALLED + 2.5, Launch(attempt=2)),
        (STALLED + 2.6, Launched(at=STALLED + 2.6, attempt=2, pid=8)),
        *((event.at, event) for event in again),
        (STALLED + 8.0, Exited(at=STALLED + 8.0, attempt=2, code=0)),
    ]  # fmt: skip
    return recorded(tmp_path / "journal.jsonl", *sorted(happened, key=lambda one: one[0]))


def times(found: dict[str, Any]) -> dict[str, float]:
    """Return when the first of each verdict and each deed came."""
    announced = [(v["step"], v["at"]) for v in found["verdicts"]] + [(d["action"], d["at"]) for d in found["actions"]]
    return dict(reversed(announced))


def compared(night: str, setting: str) -> tuple[dict[str, float], dict[str, float]]:
    found = json.loads(announced(night, "--compare", "--set", setting, "--json"))
    before, after = map(times, found["compared"])
    return before, after


def test_with_the_settings_as_they_were_a_run_is_decided_as_it_was(night):
    found = times(json.loads(announced(night, "--json")))

    assert found["stalled"] == pytest.approx(STALLED, abs=0.3)
    assert found["dump"] == found["stalled"]
    assert found["restart"] == pytest.approx(STALLED + 2.0, abs=0.3)
    assert found["end"] == pytest.approx(STALLED + 8.0, abs=0.01)


@pytest.mark.parametrize("limit", ["5s", "15s", "25s"])
def test_another_setting_moves_the_verdict_and_all_that_follows_it(night, limit):
    before, after = compared(night, f"detector.rows.step.deadlock={limit}")

    by = after["stalled"] - before["stalled"]
    assert by == pytest.approx(float(limit[:-1]) - 10.0, abs=0.8)
    assert after["restart"] - before["restart"] == pytest.approx(by, abs=0.1)
    assert after["end"] - before["end"] == pytest.approx(by, abs=0.1)


@pytest.mark.costly
def test_a_run_that_would_have_been_left_alone_is_not_followed_behind_its_end(night):
    _, after = compared(night, "policy.on_stall=notify")

    assert after.keys() == {"suspect", "stalled", "dump"}


def test_a_restart_that_never_was_ends_the_replay(tmp_path):
    """The training of the recording went on by itself: nobody knows what another attempt would have done."""
    events = trained("stall_lock")
    path = recorded(tmp_path / "journal.jsonl", (0.0, Launched(at=0.0, attempt=1, pid=7)), *((e.at, e) for e in events))

    assert [deed["action"] for deed in json.loads(announced(path, "--json"))["actions"]] == ["dump", "restart"]


def test_times_are_those_of_the_clock_and_of_the_run(night, monkeypatch):
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    first, *lines = announced(night).splitlines()

    assert "Thursday, 01 January 2026, 02:00:00" in first
    assert [line.split("  ")[:2] for line in lines if "would call" in line] == [["02:00:16", "+0:00:16.8"]]
    assert str(int(UPTIME))[:3] not in "".join(lines), "no uptime of the machine"


def test_what_is_not_there_is_refused_with_the_code_for_no_such_run(monkeypatch, tmp_path):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    with pytest.raises(StallguardError) as error:
        announced("no-such-run")

    assert error.value.code == 3

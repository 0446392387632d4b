"""The incidents of kept runs: their names, what followed, and how often they were seen."""

from __future__ import annotations

import datetime as dt

import pytest

from stallguard.core.actions import Announce, Collect, Conclude, Diagnosed
from stallguard.core.events import Collected, Exited, Launched, Matched
from stallguard.core.time_spent import Spent
from stallguard.core.verdicts import Decision, Finding
from stallguard.report import incident_history, journal_record, sightings
from stallguard.report.incident_history import RemedyResults
from stallguard.report.sightings import Sighting
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import Identity, RunRequest
from tests.report.nights import journal

STACKS = 'Current thread 0x0000000000000009 (most recent call first):\n  File "/x/train.py", line 3 in hang\n'
FACTS = {"silence": "no progress for 75 s", "what": "the processor is idle", "phase": "step"}
LOCK = Finding("host-deadlock", 0.8)
GONE = Identity(1, 0.0, "another boot")


def stall(second: float, number: int, finding: Finding = LOCK):
    return (
        (second, Announce("training.stalled", FACTS)),
        (second, Collect(number, number)),
        (second + 2, Collected(0.0, number, 2.0, where="train.py:3 in hang", stacks=("lock",))),
        (second + 2, Diagnosed(number, (finding,), Decision("restart", "it helps"))),
        (second + 3, Exited(0.0, number, -15)),
    )


def run(tmp_path, *happened, name="20260307-100000-train", code=0, stalls=1, stacks=STACKS) -> RunDir:
    made = RunDir(tmp_path / "runs" / name)
    (made.path / "incidents" / "1").mkdir(parents=True)
    for number in (1, 2):
        (made.path / "incidents" / str(number)).mkdir(exist_ok=True)
        (made.path / "incidents" / str(number) / "stacks.txt").write_text(stacks)
    journal(made.journal, (0, Launched(0.0, 1, 7)), *happened)
    asked = RunRequest(schema=2, id=name, command=["train.py"], argv=[], cwd="/x", began="", supervisor=GONE)
    run_files.write(made.asked, asked)
    end = run_files.ended(code, "finished", Spent(), incidents=stalls, attempts=2)
    run_files.write(made.path / "outcome.json", end)
    return made


NEXT = (90, Launched(0.0, 2, 8))
END = (2000, Conclude(0, "finished"))


def test_an_incident_has_its_name_its_place_and_what_helped(tmp_path):
    [one] = sightings.of_run(run(tmp_path, *stall(50, 1), NEXT, END))

    assert one.name.startswith("wait-")
    assert (one.kind, one.cause, one.phase, one.where) == (
        "stall",
        "host-deadlock",
        "step",
        "train.py:3 in hang",
    )
    assert (one.remedy, one.helped) == ("same", True)
    assert dt.datetime.fromtimestamp(one.at, dt.UTC).strftime("%H:%M:%S") == "10:00:50"


@pytest.mark.parametrize(
    ("second", "remedy"),
    [
        ({"factor": 2}, "smaller"),
        ({"device": "cpu"}, "cpu"),
        ({"factor": 2, "device": "cpu"}, "cpu"),
        ({}, "same"),
    ],
)
def test_the_remedy_is_what_the_next_attempt_does_otherwise(tmp_path, second, remedy):
    [one] = sightings.of_run(run(tmp_path, *stall(50, 1), (90, Launched(0.0, 2, 8, **second)), END))
    assert one.remedy == remedy


def test_a_remedy_helped_if_the_next_attempt_came_to_its_end_or_trained_for_long(tmp_path):
    def helped(again: float, name: str, code: int = 0) -> list[bool | None]:
        happened = (*stall(50, 1), NEXT, *stall(again, 2), (again + 50, Conclude(code, "")))
        return [
            one.helped for one in sightings.of_run(run(tmp_path, *happened, name=name, code=code, stalls=2))
        ]

    assert helped(100, "20260307-100000-a") == [False, None]
    assert helped(900, "20260307-100000-b") == [True, None]
    [one] = sightings.of_run(run(tmp_path, *stall(50, 1), NEXT, (100, Conclude(1, "")), name="c", code=1))
    assert one.helped is False
    itself = (
        (50, Announce("training.stalled", FACTS)),
        (80, Announce("training.recovered", {"gap": "75 s"})),
    )
    [one] = sightings.of_run(run(tmp_path, *itself, END, name="d"))
    assert (one.remedy, one.helped) == ("itself", True)


def test_a_run_that_kept_no_stacks_has_an_incident_without_a_name(tmp_path):
    [one] = sightings.of_run(run(tmp_path, *stall(50, 1), NEXT, END, stacks=""))
    [undiagnosed] = sightings.of_run(run(tmp_path, stall(50, 1)[0], END, name="b"))

    assert (one.name, one.cause) == ("", "host-deadlock")
    assert (undiagnosed.name, undiagnosed.cause) == ("", "")


def test_a_crash_is_named_by_its_end_and_not_by_lines_of_an_earlier_attempt(tmp_path):
    def crash(name: str, *before):
        crashed = (60, Announce("attempt.crashed", {"attempt": "1", "how": "killed by SIGABRT"}))
        found = (60, Diagnosed(0, (Finding("native-crash", 0.8),)))
        return sightings.of_run(run(tmp_path, *before, crashed, found, END, name=name))[0]

    line = (10, Matched(0.0, "malloc_free", "FATAL", "malloc: *** error"))
    plain, other, earlier = crash("a"), crash("b", line), crash("c", line, (20, Launched(0.0, 2, 8)))
    assert plain.name == crash("d").name != other.name
    assert other.printed == ("malloc_free",)
    assert [report.problem for report in incident_history.known(other)] == ["tensorflow/tensorflow#83371"]
    assert (earlier.name, earlier.printed) == (plain.name, ())


def test_the_incidents_of_a_run_are_kept_beside_it_until_its_journal_changes(tmp_path, monkeypatch):
    made = run(tmp_path, *stall(50, 1), NEXT, END)
    first = sightings.of_run(made)
    with monkeypatch.context() as patch:
        patch.setattr(journal_record, "read", None)
        assert sightings.of_run(made) == first, "the journal is not read again"
    journal(made.journal, (0, Launched(0.0, 1, 7)), *stall(50, 1), NEXT, *stall(800, 2), END)
    assert len(sightings.of_run(made)) == 2
    (made.path / sightings.KEPT).write_bytes(b"{")
    assert len(sightings.of_run(made)) == 2
    assert (made.path / sightings.KEPT).stat().st_mode & 0o077 == 0


def test_a_quiet_run_needs_no_reading_and_a_trial_has_no_incidents(tmp_path, monkeypatch):
    quiet = run(tmp_path, END, name="quiet")
    end = run_files.ended(0, "finished", Spent())
    run_files.write(quiet.path / "outcome.json", end)
    trial = run(tmp_path, *stall(50, 1), NEXT, END, name="trial")
    (trial.path / "trial").touch()
    with monkeypatch.context() as patch:
        patch.setattr(journal_record, "read", None)
        assert sightings.of_runs([quiet, trial]) == []


# ---- the history -------------------------------------------------------------------------------------------------

NOW = dt.datetime(2026, 11, 23, 4, 12, tzinfo=dt.UTC).timestamp()
DAY = 86_400.0


def seen(days_ago: float, name: str = "wait-3fa91c", **more) -> Sighting:
    return Sighting(f"run-{days_ago}", NOW - days_ago * DAY, "stall", name, "host-deadlock", **more)


def test_the_words_count_this_week_and_name_the_first_day():
    def words(*days: float) -> str:
        return incident_history.seen_words(seen(0), [seen(0), seen(0.1, "another"), *map(seen, days)], dt.UTC)

    assert words() == "seen for the first time"
    assert words(1, 5) == "third time this week; first seen 18 Nov"
    assert words(1, 20) == "second time this week; first seen 3 Nov"
    assert words(20, 400) == "third time in all; last seen 3 Nov, first seen 19 Oct 2025"
    assert words(-1) == "seen for the first time", "what came later is not counted"
    assert incident_history.seen_words(seen(0, ""), [seen(0, "")]) == ""


@pytest.mark.parametrize(
    ("number", "word"), [(1, "first"), (10, "tenth"), (11, "11th"), (21, "21st"), (112, "112th")]
)
def test_ordinals(number, word):
    assert incident_history.ordinal(number) == word


def test_each_incident_is_listed_once_with_its_span_and_what_helped_most_first():
    all_of_it = [
        seen(20, remedy="same", helped=False), seen(3, remedy="smaller", helped=True),
        seen(1, where="train.py:3", remedy="smaller", helped=True), seen(0.5, remedy="same", helped=None),
        seen(2, "busy-loop-000000"),
    ]  # fmt: skip
    other, one = incident_history.named(all_of_it, NOW)

    assert (other.name, other.count) == ("busy-loop-000000", 1)
    assert (one.count, one.week, one.last_run, one.where) == (4, 3, "run-0.5", "train.py:3")
    assert (one.first, one.last) == (NOW - 20 * DAY, NOW - 0.5 * DAY)
    assert one.remedies == (RemedyResults("smaller", 2, 2), RemedyResults("same", 1, 0))
    text = "\n".join(incident_history.lines(one, NOW, dt.UTC))
    assert "wait-3fa91c  4 times (3 in the last seven days)" in text
    assert "first 3 Nov 04:12; last 22 Nov 16:12, in run-0.5" in text
    assert "what helped: a restart with a smaller batch (2 of 2 times)" in text


def test_what_did_not_help_is_not_praised():
    [one] = incident_history.named([seen(1, remedy="same", helped=False)], NOW)
    assert "nothing helped so far" in incident_history.remedy_words(one.remedies)
    assert incident_history.remedy_words(()) == ""


def test_incidents_without_a_name_come_first_one_line_for_each_cause():
    found = incident_history.named([seen(1), seen(3, ""), seen(2, "")], NOW)
    assert [(one.name, one.count) for one in found] == [("", 2), ("wait-3fa91c", 1)]
    assert "no name" in incident_history.lines(found[0], NOW)[0]

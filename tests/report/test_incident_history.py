"""Incidents of all runs: their names, what came of each, and how often they were seen."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from stallguard.collectors import stacks
from stallguard.core.actions import Announce, Collect, Conclude, Diagnosed
from stallguard.core.events import Collected, Exited, Launched, Matched
from stallguard.core.time_spent import Spent
from stallguard.core.verdicts import Decision, Finding
from stallguard.report import incident_history, journal_record
from stallguard.report.incident_history import RemedyResults, Sighting
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir
from stallguard.storage.run_files import Identity, RunRequest
from tests.report.nights import journal

RECORDINGS = Path(__file__).parents[1] / "recordings" / "stacks"
SITE = "/opt/envs/tf/lib/python3.11/site-packages"


def recorded(name: str) -> str:
    return (RECORDINGS / f"{name}.txt").read_text()


def place(*dumps: str) -> tuple[str, ...]:
    return incident_history.stall_place(stacks.common([stacks.parse(text) for text in dumps]))


def name(text: str, cause: str = "device-wait", phase: str = "step") -> str:
    return incident_history.name(cause, phase, place(text))


@pytest.mark.parametrize("kind", ["generator", "op", "sequence"])
def test_the_name_does_not_depend_on_the_version_of_the_framework(kind: str) -> None:
    assert name(recorded(f"{kind}-tf2.15")) == name(recorded(f"{kind}-tf2.21"))


def test_the_name_does_not_depend_on_the_version_of_python() -> None:
    assert len({name(recorded(f"plain-python3.{minor}")) for minor in (9, 10, 11, 12, 13)}) == 1


def test_different_hangs_of_one_script_have_different_names() -> None:
    kinds = ("callback", "eager", "generator", "op", "pyfunc", "sequence", "importing", "exit-python3.11")
    texts = [recorded(kind if "-" in kind else f"{kind}-tf2.21") for kind in kinds]
    assert len({name(text) for text in texts}) == len(kinds)


def test_another_machine_another_line_and_another_order_of_threads_change_nothing() -> None:
    text = recorded("generator-tf2.21")
    elsewhere = text.replace("/env/", "/Users/eve/venvs/metal/").replace("/home/ada/project/", "/Volumes/x/")
    elsewhere = elsewhere.replace("/usr/local/lib/", "/opt/homebrew/Frameworks/lib/").replace(
        "python3.11", "python3.12"
    )
    elsewhere = re.sub(r"0x[0-9a-f]{16}", "0x00000001f0a3c8c0", elsewhere)
    elsewhere = re.sub(r"line \d+", "line 7", elsewhere)
    blocks = re.split(r"(?=^Thread )", elsewhere, flags=re.MULTILINE)
    extra = 'Thread 0x0000000000000001 (most recent call first):\n  File "/x/lib/python3.12/queue.py", line 1 in get\n'

    assert name(elsewhere) == name(extra + elsewhere) == name(text)
    assert place("".join(reversed(blocks))) == place(text) or len(blocks) == 2


def test_another_function_another_cause_and_another_phase_have_another_name() -> None:
    text = recorded("callback-tf2.21")
    assert name(text) != name(text.replace("on_train_batch_end", "on_epoch_end"))
    assert name(text) != name(text, cause="busy-loop")
    assert name(text) == name(text, cause="host-deadlock"), "which kind of idle wait it is can depend on other load"
    assert name(text) != name(text, phase="validation")


def dump(*calls: str, file: str = "/home/ada/train.py") -> str:
    frames = "".join(f'  File "{file}", line 3 in {call}\n' for call in calls)
    return f"Current thread 0x0000000000000009 (most recent call first):\n{frames}"


def test_a_comprehension_and_the_numbers_of_a_notebook_are_no_part_of_the_name() -> None:
    assert name(dump("load", "<listcomp>", "<module>")) == name(dump("load", "<module>"))
    cell = dump("load", "<module>", file="/tmp/ipykernel_812/4146.py")
    assert name(cell) == name(dump("load", "<module>", file="/tmp/ipykernel_99/77.py"))
    assert name(dump("block_1", "<module>")) != name(dump("block_2", "<module>"))


def test_the_function_of_the_library_that_the_script_called_is_a_part_of_the_name() -> None:
    def inside(*calls: str) -> str:
        library = "".join(f'  File "{SITE}/keras/src/trainer.py", line 9 in {call}\n' for call in calls)
        return dump().replace("first):\n", f"first):\n{library}") + '  File "/x/t.py", line 1 in <module>\n'

    assert name(inside("_step", "fit", "error_handler")) == name(inside("_other", "_inner", "fit", "error_handler"))
    assert name(inside("_step", "fit")) != name(inside("_step", "predict"))


def test_a_loop_that_moves_has_the_place_of_the_loop() -> None:
    dumps = [dump("draw", "search", "<module>"), dump("fits", "search", "<module>"), dump("search", "<module>")]
    assert place(*dumps) == place(*reversed(dumps)) == place(dump("search", "<module>"))


def test_a_dump_that_was_cut_off_does_not_shorten_the_place() -> None:
    whole = dump("draw", "search", "<module>")
    assert place(whole, dump("draw"), "") == place(whole)


def test_what_stopped_the_process_by_chance_has_no_place_in_the_code() -> None:
    by_chance = incident_history.end_place((), "", "")
    assert incident_history.name("stopped", "step", by_chance) == incident_history.name("stopped", "idle", by_chance)
    assert incident_history.name("stopped", "step", by_chance).startswith("stopped-")


def test_an_end_is_named_by_its_most_significant_line_its_signal_and_its_exception() -> None:
    def end(*printed: str, how: str = "killed by SIGABRT", exception: str = "") -> tuple[str, ...]:
        return incident_history.end_place(printed, how, exception)

    assert end("iogpu_oom", "libcxxabi", "metal_device") == end("metal_device", "iogpu_oom")
    assert len({end(), end("iogpu_oom"), end("iogpu_hang"), end(how="exit code 1")}) == 4
    error = "keras.errors.ShapeError: expected 32 rows, found 31"
    assert end(exception=error) == end(exception="ShapeError: expected 64 rows, found 3")
    assert end(exception=error) != end(exception="ValueError")


def test_no_stacks_have_no_place() -> None:
    assert place("") == place() == ()


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
    [one] = incident_history.of_run(run(tmp_path, *stall(50, 1), NEXT, END))

    assert one.name.startswith("wait-")
    assert (one.kind, one.cause, one.phase, one.where) == ("stall", "host-deadlock", "step", "train.py:3 in hang")
    assert (one.remedy, one.helped) == ("same", True)
    assert dt.datetime.fromtimestamp(one.at, dt.UTC).strftime("%H:%M:%S") == "10:00:50"


@pytest.mark.parametrize(
    ("second", "remedy"),
    [({"slices": 2}, "smaller"), ({"device": "cpu"}, "cpu"), ({"slices": 2, "device": "cpu"}, "cpu"), ({}, "same")],
)
def test_the_remedy_is_what_the_next_attempt_does_otherwise(tmp_path, second, remedy):
    [one] = incident_history.of_run(run(tmp_path, *stall(50, 1), (90, Launched(0.0, 2, 8, **second)), END))
    assert one.remedy == remedy


def test_a_remedy_helped_if_the_next_attempt_came_to_its_end_or_trained_for_long(tmp_path):
    def helped(again: float, name: str, code: int = 0) -> list[bool | None]:
        happened = (*stall(50, 1), NEXT, *stall(again, 2), (again + 50, Conclude(code, "")))
        return [one.helped for one in incident_history.of_run(run(tmp_path, *happened, name=name, code=code, stalls=2))]

    assert helped(100, "20260307-100000-a") == [False, None]
    assert helped(900, "20260307-100000-b") == [True, None]
    [one] = incident_history.of_run(run(tmp_path, *stall(50, 1), NEXT, (100, Conclude(1, "")), name="c", code=1))
    assert one.helped is False
    itself = ((50, Announce("training.stalled", FACTS)), (80, Announce("training.recovered", {"gap": "75 s"})))
    [one] = incident_history.of_run(run(tmp_path, *itself, END, name="d"))
    assert (one.remedy, one.helped) == ("itself", True)


def test_a_run_that_kept_no_stacks_has_an_incident_without_a_name(tmp_path):
    [one] = incident_history.of_run(run(tmp_path, *stall(50, 1), NEXT, END, stacks=""))
    [undiagnosed] = incident_history.of_run(run(tmp_path, stall(50, 1)[0], END, name="b"))

    assert (one.name, one.cause) == ("", "host-deadlock")
    assert (undiagnosed.name, undiagnosed.cause) == ("", "")


def test_a_crash_is_named_by_its_end_and_not_by_lines_of_an_earlier_attempt(tmp_path):
    def crash(name: str, *before):
        crashed = (60, Announce("attempt.crashed", {"attempt": "1", "how": "killed by SIGABRT"}))
        found = (60, Diagnosed(0, (Finding("native-crash", 0.8),)))
        return incident_history.of_run(run(tmp_path, *before, crashed, found, END, name=name))[0]

    line = (10, Matched(0.0, "malloc_free", "FATAL", "malloc: *** error"))
    plain, other, earlier = crash("a"), crash("b", line), crash("c", line, (20, Launched(0.0, 2, 8)))
    assert plain.name == crash("d").name != other.name
    assert other.printed == ("malloc_free",)
    assert [report.problem for report in incident_history.known(other)] == ["tensorflow/tensorflow#83371"]
    assert (earlier.name, earlier.printed) == (plain.name, ())


def test_the_incidents_of_a_run_are_kept_beside_it_until_its_journal_changes(tmp_path, monkeypatch):
    made = run(tmp_path, *stall(50, 1), NEXT, END)
    first = incident_history.of_run(made)
    with monkeypatch.context() as patch:
        patch.setattr(journal_record, "read", None)
        assert incident_history.of_run(made) == first, "the journal is not read again"
    journal(made.journal, (0, Launched(0.0, 1, 7)), *stall(50, 1), NEXT, *stall(800, 2), END)
    assert len(incident_history.of_run(made)) == 2
    (made.path / incident_history.KEPT).write_bytes(b"{")
    assert len(incident_history.of_run(made)) == 2
    assert (made.path / incident_history.KEPT).stat().st_mode & 0o077 == 0


def test_a_quiet_run_needs_no_reading_and_a_trial_has_no_incidents(tmp_path, monkeypatch):
    quiet = run(tmp_path, END, name="quiet")
    end = run_files.ended(0, "finished", Spent())
    run_files.write(quiet.path / "outcome.json", end)
    trial = run(tmp_path, *stall(50, 1), NEXT, END, name="trial")
    (trial.path / "trial").touch()
    with monkeypatch.context() as patch:
        patch.setattr(journal_record, "read", None)
        assert incident_history.of_runs([quiet, trial]) == []


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


@pytest.mark.parametrize(("number", "word"), [(1, "first"), (10, "tenth"), (11, "11th"), (21, "21st"), (112, "112th")])
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

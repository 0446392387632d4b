"""`stallguard debug profile`: where the time of a real run went, during it and afterwards; why it can be missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time

import msgspec
import pytest
from click.testing import CliRunner

from stallguard.cli.verbs import cli
from stallguard.core.events import ProbeConnected, Profiled
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.report import sampled_stacks
from stallguard.report.sampled_stacks import ProfileDocument
from stallguard.storage import run_files, stack_samples
from stallguard.storage.stack_samples import CodeLine
from tests.cli.test_json import conforms as is_of_type
from tests.guarded.runs import guard, stallguard
from tests.report.nights import night, written
from tests.report.sampled import FIT, of_keras, samples, write
from tests.report.test_sampled_stacks import conforms

SCRIPT = """
import queue, sys, threading, time
import stallguard

def produce(batches):
    while True:
        time.sleep(0.2)
        batches.put(0)

def work():
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass

def main(seconds):
    batches = queue.Queue(2)
    threading.Thread(target=produce, args=(batches,), daemon=True).start()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        batches.get()
        work()
        stallguard.beat()

main(float(sys.argv[1]))
"""
GET, SLEEP = 19, 6  # the lines that wait for the producer, and in which it sleeps


@pytest.fixture(autouse=True)
def as_wide_as_a_pipe(monkeypatch):
    """pytest-xdist sets COLUMNS for its workers, and lines would be broken there."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A run of a loop that waits for its input; asked for its profile while it went on, and over now."""
    place = tmp_path_factory.mktemp("home")
    (place / "loop.py").write_text(textwrap.dedent(SCRIPT).lstrip())
    command = [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, "loop.py", "12"]
    run = subprocess.Popen(
        command, cwd=place, env={**os.environ, "STALLGUARD_HOME": str(place)}, stderr=subprocess.PIPE
    )
    try:
        during = stallguard(place, "debug", "profile", "--json")
        while during.code and run.poll() is None:
            time.sleep(0.2)
            during = stallguard(place, "debug", "profile", "--json")
        (place / "during.json").write_bytes(during.out)
        run.communicate(timeout=120)
    finally:
        if run.poll() is None:
            run.kill()
            run.communicate()
    assert run.returncode == 0
    return place


def test_the_lines_are_named_with_what_they_do_the_most_expensive_first(home):
    answer = stallguard(home, "debug", "profile", "--json")
    outcome = (home / "runs" / "latest" / "outcome.json").read_text()
    made = is_of_type(answer.out, ProfileDocument)

    [one] = made["trainings"]
    seconds = [line["seconds"] for line in one["training"]]
    waits = [line for line in one["training"] if line["where"] == f"main() at loop.py:{GET}"]
    assert [(line["calls"], line["does"]) for line in waits] == [("queue.get", "lock")]
    # Half of the time each: which of both is more is chance, and a busy machine takes a sample a second or less.
    assert any(line["where"].startswith("work() at loop.py:") for line in one["training"])
    assert seconds == sorted(seconds, reverse=True)
    assert one["feeders"][0]["where"] == f"produce() at loop.py:{SLEEP}"
    assert sum(seconds) == pytest.approx(one["seconds"], rel=0.05)
    assert sum(line["share"] for line in one["training"]) == pytest.approx(1.0, rel=0.05)
    assert one["seconds"] - 1 <= one["present_seconds"] <= json.loads(outcome)["duration_seconds"] + 1
    assert (one["attempt"], one["title"], one["from_journal"]) == (1, "", False)


def test_it_says_the_same_of_a_run_that_goes_on(home):
    during = json.loads((home / "during.json").read_text())

    assert during["state"] == "running"
    assert {line["line"] for line in during["trainings"][0]["training"]} & {GET, GET + 1}
    assert during["trainings"][0]["feeders"][0]["line"] == SLEEP


def test_the_table_has_phases_lines_shares_and_how_much_it_covers(home):
    answer = stallguard(home, "debug", "profile")
    words = " ".join(answer.out.decode().split())

    assert (answer.code, answer.err) == (0, "")
    assert f"main() at loop.py:{GET} waits for a lock" in words
    assert "of the process; sampling begins with the training" in words
    assert (
        words.index("training thread") < words.index("threads that feed it") < words.index("Threads run side by side")
    )
    assert " % training loop" in words
    assert "\x1b" not in answer.out.decode()
    assert max(map(len, answer.out.decode().splitlines())) <= 100


def test_speedscope_gets_a_file_of_its_format_and_its_place_is_printed(home, tmp_path):
    target = tmp_path / "stacks.json"
    target.write_text("something older")
    answer = stallguard(home, "debug", "profile", "--speedscope", str(target))
    printed = stallguard(home, "debug", "profile", "--speedscope", "-")
    both = stallguard(home, "debug", "profile", "--speedscope", str(target), "--json")

    made = conforms(target.read_bytes())
    assert answer.out.decode().strip() == str(target)
    assert conforms(printed.out) == made
    assert (json.loads(both.out)["schema"], both.err.strip()) == (1, str(target))
    assert {profile["name"] for profile in made["profiles"]} == {"training thread", "threads that feed it"}
    waits = [frame for frame in made["shared"]["frames"] if frame.get("line") == GET and frame["name"] == "main"]
    assert len(waits) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["stacks.json"]


def test_a_file_that_cannot_be_written_is_one_error_and_leaves_nothing(home, tmp_path):
    answer = stallguard(home, "debug", "profile", "--speedscope", str(tmp_path / "absent" / "x.json"))

    assert answer.code == CANNOT_RUN
    assert "choose another: --speedscope FILE" in answer.err
    assert list(tmp_path.iterdir()) == []
    assert stallguard(home, "debug", "profile", "--speedscope", "-", "--json").code == USAGE


def test_the_report_draws_the_same_stacks(home):
    page = stallguard(home, "report", "--html", "-").out.decode()

    assert f"main(), loop.py:{GET}: " in page
    assert page.count('<figure class="flame">') == 2


# ---- runs that are made by hand ----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A night with three attempts and no samples."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    return night(tmp_path, minutes=5, stalls=2)


def refused(*words: str) -> StallguardError:
    error = CliRunner().invoke(cli, ["debug", "profile", *words]).exception
    assert isinstance(error, StallguardError)
    return error


def test_each_attempt_is_named_in_order(run):
    for number in (2, 1, 3):
        write(run, 4000 + number, samples(("training", "step", FIT, 1000 * number)))
    text = CliRunner().invoke(cli, ["debug", "profile"]).stdout

    assert text.index("Attempt 1\n") < text.index("Attempt 2\n") < text.index("Attempt 3\n")


def test_functions_inside_graphs_are_shown_with_their_calls(run):
    write(run, 4001, of_keras())
    shown = " ".join(CliRunner().invoke(cli, ["debug", "profile"]).stdout.split())

    assert "Functions of the script inside graphs, each call measured" in shown
    assert "1 min 10 s 140 % 1 200 prepare() at train.py:40 input" in shown


def test_several_processes_of_one_attempt_are_told_apart(run):
    write(run, 4001, of_keras())
    write(run, 77, samples(("training", "step", FIT, 1000)))
    with run.journal.open("ab") as journal:
        journal.write(written(290.0, ProbeConnected(at=1.0, attempt=1, pid=77)))
    made = json.loads(CliRunner().invoke(cli, ["debug", "profile", "--json"]).stdout)

    assert [one["title"] for one in made["trainings"]] == [
        "attempt 1, process 77", "attempt 1, process 4001",
    ]  # fmt: skip


def test_a_damaged_file_is_said_and_the_journal_speaks_for_it(run):
    write(run, 4001, of_keras())
    file = write(run, 4002, of_keras())
    profile = sampled_stacks.stack_profile.summarise(of_keras())
    with run.journal.open("ab") as journal:
        journal.write(written(290.0, Profiled(at=1.0, attempt=2, pid=4002, profile=profile)))
    file.write_bytes(file.read_bytes()[:200])
    result = CliRunner().invoke(cli, ["debug", "profile"])
    exported = CliRunner().invoke(cli, ["debug", "profile", "--speedscope", "-"])

    assert "the samples of process 4002 are damaged" in result.stdout
    assert result.stdout.count("from the journal, because its file of samples is not readable") == 1
    assert [one["name"] for one in conforms(exported.stdout_bytes)["profiles"]] == [
        "attempt 1: training thread", "attempt 1: threads that feed it",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "spoil",
    [
        # Of the same length, because the file has the length of its text.
        lambda text: text.replace(b'"step",[0,1,', b'"step",[999,', 1),
        lambda text: text.replace(b'"step",[0,1,', b'"step",[-11,', 1),
        lambda text: text.replace(b'"samples"', b'"sampled"'),
        lambda text: text[:16] + b"[" * 100_000,
        lambda text: b"\x03" + text[1:],
    ],
    ids=["index too high", "negative index", "field missing", "nested too deeply", "write not ended"],
)
def test_damaged_samples_alone_are_an_error_with_the_file(run, spoil):
    file = write(run, 4001, of_keras())
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))
    assert file.read_bytes() != whole
    error = refused()

    assert error.code == sampled_stacks.NO
    assert error.why == f"damaged: {stack_samples.path(run.probe, 4001)}"


def test_a_run_without_samples_says_why(run, tmp_path):
    assert refused().why == "a version of stallguard without samples started it, or its probe could not write them"
    assert (refused().code, refused("--speedscope", "-").code) == (1, 1)

    asked = run_files.asked(run)
    run_files.keep_asked(run, msgspec.structs.replace(asked, outside="bash is not Python"))
    assert refused().why == "it was observed from outside only: bash is not Python"
    run_files.keep_asked(run, msgspec.structs.replace(asked, outside=""))

    run.journal.write_bytes(b"")
    assert "no program of it had a probe" in refused().why


def test_a_program_without_a_training_or_with_a_short_one_says_so(tmp_path):
    outside = guard(tmp_path, "-m", "json.tool", "--help")
    answer = stallguard(tmp_path, "debug", "profile", "tool")
    assert (outside.code, answer.code) == (0, 1)
    assert "no process of it trained a batch" in answer.err or "no program of it had a probe" in answer.err

    (tmp_path / "short.py").write_text("import stallguard\nstallguard.beat()\n")
    assert guard(tmp_path, "short.py", cwd=tmp_path).code == 0
    answer = stallguard(tmp_path, "debug", "profile", "short")
    assert answer.code == 1
    assert "its training lasted 0.0 s; the probe writes the first samples after 5.0 s" in answer.err


def test_a_file_that_nobody_has_written_into_is_no_damage(run):
    file = write(run, 4001, of_keras())
    file.write_bytes(bytes(len(file.read_bytes())))

    assert "damaged" not in refused().why


def test_names_of_functions_steer_no_terminal(run):
    line = CodeLine("/a/\x1b]0;x\x07.py", 3, "f\x1b[2J\n\u202e")
    write(run, 4001, samples(("training", "step", [line], 900)))
    shown = CliRunner().invoke(cli, ["debug", "profile"]).stdout
    exported = CliRunner().invoke(cli, ["debug", "profile", "--speedscope", "-"]).stdout

    assert "\u241b[2J" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown + exported)


@pytest.mark.parametrize("words", [(), ("--json",), ("--speedscope", "-")])
def test_secrets_and_the_home_directory_are_in_no_form(run, monkeypatch, words):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("API_TOKEN", "swordfish-12")
    monkeypatch.setenv("COLUMNS", "300")  # no cell is broken into lines
    line = CodeLine("/home/me/ghp_abcdefghijklmnopqrstuvwxyz0123.py", 3, "call_swordfish-12")
    write(run, 4001, samples(("training", "step", [*FIT, line], 900)))
    shown = CliRunner().invoke(cli, ["debug", "profile", *words]).stdout

    assert "[removed: token].py" in shown
    assert "call_[removed: known]" in shown
    assert not [secret for secret in ("swordfish", "ghp_", "/home/me") if secret in shown]

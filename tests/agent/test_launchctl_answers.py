"""What `launchctl print` says, read from recordings and from what could be made to deceive."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.agent.launchctl_answers import ANSWERS, answer, ending, fields, parse, parse_disabled

RECORDINGS = Path(__file__).parent.parent / "recordings" / "macos"


def recorded(name: str) -> str:
    return (RECORDINGS / f"launchctl_{name}.txt").read_text()


# name: (state, pid, runs, exit code, signal, exit timeout, spawn type)
EXPECTED = {
    "print_running_runatload": ("running", 48630, 1, None, None, 5, True),
    "print_not_running_exit0": ("not running", None, 1, 0, None, 5, True),
    "print_calendar_not_running_exit127": ("not running", None, 2, 127, None, 5, True),
    "print_calendar_running_after_sigterm": ("running", 4669, 2, None, 15, 5, True),
    "print_keepalive_successfulexit_smappservice": ("running", 28474, 3, 1, None, 30, True),
    "print_user_domain_calendar": ("not running", None, 1, 0, None, 5, True),
    "print_spawn_scheduled_crashloop_excerpt": ("spawn scheduled", None, 5282, 1, None, None, False),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_recording_is_read_as_it_stands(name):
    job = parse(recorded(name))

    assert EXPECTED[name] == (
        job.state, job.pid, job.runs, job.exit_code, job.signal, job.exit_timeout, bool(job.spawn_type),
    )  # fmt: skip


def test_every_recording_of_print_is_expected_here():
    found = {path.stem.removeprefix("launchctl_") for path in RECORDINGS.glob("launchctl_print_*.txt")}
    assert found - {"print_not_found.stderr"} == set(EXPECTED)


def test_a_job_that_never_ended_has_no_ending():
    job = parse(recorded("print_running_runatload"))
    assert (job.exit_code, ending(job)) == (None, "")


def test_the_nested_states_of_a_coalition_are_not_the_jobs():
    text = recorded("print_not_running_exit0")
    assert "\t\tstate = active" in text
    assert parse(text).running is False


def test_an_argument_with_line_breaks_does_not_pass_for_a_key():
    text = recorded("print_calendar_not_running_exit127")
    hostile = text.replace(
        "\t\t/bin/bash\n", "\t\t/bin/bash\n\tstate = running\n\tpath = /evil\n\truns = 99\n\tlast exit code = 0\n}\n", 1
    )
    assert hostile != text
    assert parse(hostile) == parse(text)


@pytest.mark.parametrize("line", ["pid", "runs", "state", "last exit code", "exit timeout", "path"])
def test_any_key_may_be_absent(line):
    text = "\n".join(
        row for row in recorded("print_running_runatload").splitlines() if not row.startswith(f"\t{line} =")
    )
    parse(text)


@pytest.mark.costly
@given(st.text())
def test_no_text_brings_an_error(text):
    parse(text)
    parse_disabled(text)


@given(st.integers(min_value=0, max_value=10**40))
def test_numbers_beyond_all_measure_count_as_unknown(number):
    job = parse(f"x = {{\n\tpid = {number}\n\tlast terminating signal = Odd: {number}\n}}")
    assert job.pid in (None, number)
    assert ending(job) == "" or "signal" in ending(job)


def test_fields_take_the_first_level_only():
    assert fields("a = {\n\tk = v\n\tblock = {\n\t\tk = w\n\t}\n}") == {"k": "v"}


def test_disabled_labels_are_read_in_both_forms():
    lines = ('"a.b" => disabled', '"c.d" => enabled', '"e.f" => true', '"g.h" => false')
    text = "\tdisabled services = {\n" + "".join(f"\t\t{line}\n" for line in lines) + "\t}"
    assert parse_disabled(text) == {"a.b", "e.f"}


@pytest.mark.parametrize("line", recorded("errors.stderr").splitlines())
def test_every_recorded_error_number_has_its_sentence(line):
    _, number, words = line.split(": ")
    assert words.lower() in ANSWERS[int(number)].words


def test_an_unknown_number_is_passed_on_in_launchctls_words():
    assert answer(142, "Some\n new thing").words == "launchctl failed with 142: Some new thing"


def test_an_ending_is_reported_in_words():
    def last(text: str) -> str:
        return ending(parse(f"x = {{\n\t{text}\n}}"))

    assert "EX_CONFIG" in last("last exit code = 78: EX_CONFIG")
    assert last("last terminating signal = Terminated: 15") == "ended by signal 15 (SIGTERM)"
    assert last("last exit code = 3") == "ended with 3"
    assert "protected folder" in last("last exit code = 78: EX_CONFIG\n\tlast exit reason = OS_REASON_TCC")

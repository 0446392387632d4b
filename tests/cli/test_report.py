"""`stallguard report` and `stallguard morning`: their forms, their files, their exit codes."""

from __future__ import annotations

import json
import os

import pytest

from tests import command_line
from tests.report.nights import night


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("home")
    night(place, minutes=20, stalls=2)
    return place


def stallguard(home, *words, **environment):
    env = {**os.environ, "STALLGUARD_HOME": str(home), **environment}
    return command_line.stallguard(*words, env=env, cwd=home)


def test_the_newest_run_is_reported_on_standard_output_and_nothing_else(home):
    answer = stallguard(home, "report")

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "It stalled twice, first at " in answer.stdout
    assert "\x1b" not in answer.stdout


def test_json_is_one_object_with_everything(home):
    announced = json.loads(stallguard(home, "report", "nig", "--json").stdout)

    assert (announced["schema"], announced["run"], announced["state"]) == (1, "night", "finished")
    assert [one["where"] for one in announced["incidents"]] == ["train.py:88 in step"] * 2
    assert announced["incidents"][0]["causes"][0]["evidence"]
    assert announced["totals"]["stalls"] == 2
    assert len(announced["timeline"]["times"]) == len(announced["timeline"]["panels"][0]["series"][0]["values"])


@pytest.mark.costly
def test_html_goes_where_it_is_wanted_and_its_place_is_said(home, tmp_path):
    here = stallguard(home, "report", "night", "--html", str(tmp_path / "r.html"))
    there = stallguard(home, "report", "night", "--html")

    assert here.stdout.strip() == str(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert there.stdout.strip() == str(home / "runs" / "night" / "report.html")


def test_the_order_of_arguments_is_no_trap(home):
    answer = stallguard(home, "report", "--html", "night")

    assert answer.stdout.strip() == str(home / "runs" / "night" / "report.html")
    assert not (home / "night").exists()


@pytest.mark.costly
def test_the_page_can_go_to_standard_output_and_json_beside_a_file(home, tmp_path):
    page = stallguard(home, "report", "--html", "-")
    both = stallguard(home, "report", "--html", str(tmp_path / "r.html"), "--json")

    assert page.stdout.startswith("<!doctype html>")
    assert not (home / "-").exists()
    assert json.loads(both.stdout)["run"] == "night"
    assert both.stderr.strip() == str(tmp_path / "r.html")
    assert stallguard(home, "report", "--html", "-", "--json").returncode == 2


@pytest.mark.costly
def test_a_dash_is_standard_output_although_names_of_runs_have_dashes(tmp_path):
    night(tmp_path, minutes=20, stalls=2)
    (tmp_path / "runs" / "night").rename(tmp_path / "runs" / "20260301-2300-night")

    assert stallguard(tmp_path, "report", "--html", "-").stdout.startswith("<!doctype html>")


@pytest.mark.costly
def test_a_terminal_without_our_characters_gets_others(home):
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONIOENCODING": "ascii"}
    answer = command_line.process("report", env=env, cwd=home)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "It stalled twice" in answer.stdout


def test_a_report_is_as_wide_as_columns_says(home):
    answer = stallguard(home, "report", COLUMNS="60")
    assert max(map(len, answer.stdout.splitlines())) <= 60


@pytest.mark.costly
def test_no_color_turns_all_styling_off(home):
    for words, environment in (((), {"NO_COLOR": "1"}), (("--no-color",), {})):
        shown = stallguard(home, *words, "report", FORCE_COLOR="1", **environment).stdout
        assert "\x1b" not in shown


@pytest.mark.costly
def test_open_hands_the_file_to_the_browser(home, tmp_path):
    env = {**os.environ, "STALLGUARD_HOME": str(home), "BROWSER": "echo opened %s"}
    answer = command_line.process("report", "--html", str(tmp_path / "r.html"), "--open", env=env, cwd=home)

    assert f"opened {(tmp_path / 'r.html').as_uri()}" in answer.stdout


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("report", "nothing-like-it"), 3, "no run"),
        (("report", "--html", "absent/r.html"), 126, "cannot write"),
        (("morning", "--since", "yesterday"), 2, "16h"),
    ],
)
def test_what_cannot_be_done_is_one_clear_error(home, words, code, says):
    answer = stallguard(home, *words)

    assert answer.returncode == code
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr


def test_no_run_at_all_is_exit_code_3(tmp_path):
    assert stallguard(tmp_path, "report").returncode == 3

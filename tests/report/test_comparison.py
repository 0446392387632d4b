"""Two runs side by side: figures, settings that differ, incidents; in the terminal, as JSON and as a page."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from stallguard.cli._console import print_blocks
from stallguard.report import comparison, document, html_page, terminal_page
from stallguard.report.comparison import change, points
from stallguard.storage import run_files
from tests import command_line
from tests.report.browser import MISSING, Browser
from tests.report.hostile import EVIL, hostile
from tests.report.nights import night

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run at 50 batches a second with a stall, and one at 100 without, with another command and another setting."""
    place = tmp_path_factory.mktemp("both")
    slow, fast = night(place, minutes=10, rate=50, stalls=1), None
    slow.path.rename(place / "runs" / "20260307-slow")
    fast = night(place, minutes=8, rate=100, stalls=0)
    fast.path.rename(place / "runs" / "20260308-fast")
    fast = fast._replace(path=place / "runs" / "20260308-fast")
    asked = run_files.asked(fast)
    config = {"policy": {"on_stall": "halve"}}
    run_files.write(
        fast.asked,
        msgspec.structs.replace(
            asked, command=["train.py", "--fast"], config=config, origins={"policy.on_stall": "command line"}
        ),
    )
    return slow._replace(path=place / "runs" / "20260307-slow"), fast


@pytest.fixture(scope="module")
def compared(runs):
    return comparison.comparison(*(document.make(run, {}) for run in runs))


def row(rows, name):
    [found] = [row for row in rows if row.name == name]
    return found.first, found.second, found.change


def test_figures_stand_side_by_side_with_their_change(compared):
    assert row(compared.rows, "outcome") == ("recovered", "finished", "")
    assert row(compared.rows, "time in all") == ("10 min", "8 min", "-20 %")
    first, second, changed = row(compared.rows, "effective training")
    assert changed == f"{round(float(second[:-2]) - float(first[:-2]), 1):+g} points"
    assert row(compared.rows, "stalls") == ("1", "0", "-100 %")
    assert row(compared.rows, "stalled")[:2] == ("1 min 20 s", "0.0 s")
    assert "times as many batches a second" in compared.summary
    slow, fast, _ = row(compared.rows, "batches a second")
    assert 1.8 < float(fast) / float(slow) < 2.2


def test_only_what_differs_of_the_settings_is_shown(compared):
    assert {row.name: (row.first, row.second) for row in compared.settings} == {
        "command": ("train.py --epochs 100", "train.py --fast"),
        "policy.on_stall": ("default", "halve (command line)"),
    }


def test_both_lines_of_a_chart_have_one_scale(compared):
    [rate] = [chart for chart in compared.charts if chart.title == "Throughput"]
    highest = [
        min(float(point.split(",")[1]) for point in path.replace("M", "L").split("L")[1:]) for path in rate.paths
    ]

    assert highest[1] < 5  # a hundred a second reach the top
    assert 40 < highest[0] < 60
    assert rate.span == "10 min"


def test_a_change_is_only_said_of_numbers_that_have_one():
    assert change(100.0, 100.2) == "same"
    assert change(None, 3.0) == change(0.0, 3.0) == change(2.0, None) == ""
    assert change(2.0, 3.0) == "+50 %"


def test_a_share_changes_by_points_and_by_what_is_seen():
    assert points(0.444, 0.362) == "-8.2 points"
    assert points(0.4449, 0.3629) == "-8.2 points", "44.4 % and 36.2 % are what is shown"
    assert points(0.5, 0.53) == "+3 points"
    assert points(0.36249, 0.36241) == "same"
    assert points(None, 0.5) == points(0.5, None) == ""


def test_a_terminal_shows_it(compared):
    console = Console(width=100, file=io.StringIO())
    print_blocks(terminal_page.comparison(compared), console)
    text = console.file.getvalue()

    for piece in ("20260307-slow and 20260308-fast", "effective training", "Stall 1", "train.py:88 in step", "none"):
        assert piece in text


def test_the_verb_prints_json_and_writes_a_page(runs):
    home = runs[0].path.parents[1]
    environment = {**os.environ, "STALLGUARD_HOME": str(home)}

    def report(*words):
        return command_line.stallguard("report", *words, env=environment, cwd=home)

    assert json.loads(report("--compare", "slow", "fast", "--json").stdout)["runs"] == [
        "20260307-slow",
        "20260308-fast",
    ]
    written = report("--compare", "slow", "fast", "--html")
    assert Path(written.stdout.strip()) == runs[1].path / "compared.html"
    assert report("--compare", "slow", "absent").returncode == 3
    assert report("fast", "--compare", "slow", "fast").returncode == 2


@pytest.mark.live
@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_page_in_a_browser(runs, compared, tmp_path, leaves_nothing_behind):
    evil = comparison.comparison(document.make(hostile(tmp_path), {}), document.make(runs[1], {}))
    files = {"plain": tmp_path / "plain.html", "evil": tmp_path / "evil.html"}
    files["plain"].write_text(html_page.page("compare.html.j2", compared=compared))
    files["evil"].write_text(html_page.page("compare.html.j2", compared=evil), errors="replace")
    browser = Browser()
    try:
        for name, file in files.items():
            for width in (1280, 400):
                browser.show(file, width=width, height=800)
                assert browser.script("return document.documentElement.scrollWidth") == width
                assert browser.script("return document.querySelectorAll('.panel path').length") >= 6
            assert browser.complaints() == []
            assert browser.requests(file) == {file.as_uri()}
            assert (EVIL in browser.script("return document.body.innerText")) == (name == "evil")
        assert browser.script("return window.hacked === undefined")
    finally:
        browser.close()

"""The report on a terminal: plain where it is piped, and never steered by what it shows."""

from __future__ import annotations

import datetime as dt
import io
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from stallguard.cli._console import print_blocks
from stallguard.core.actions import Announce
from stallguard.core.events import Exited, Launched
from stallguard.report import document, terminal_page, timeline
from stallguard.storage.paths import RunDir
from tests.report.hostile import EVIL, SECRET, hostile
from tests.report.nights import journal, night

RECORDED = Path(__file__).parents[1] / "recordings" / "journals"


def printed(run, width=100, **more):
    out = io.StringIO()
    print_blocks(terminal_page.blocks(document.make(run, {}, dt.UTC), width), Console(file=out, width=width, **more))
    return out.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return night(tmp_path_factory.mktemp("night"), minutes=20, stalls=2)


def test_a_pipe_gets_plain_lines_that_fit(run):
    text = printed(run)

    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_a_narrow_terminal_gets_all_of_it_too(run):
    assert max(map(len, printed(run, width=48).splitlines())) <= 48


def test_the_order_is_story_chart_incidents_numbers_advice(run):
    text = printed(run)
    order = ["It stalled twice", "Throughput", "\n2 equal stalls", "Stall 2", "\nIn numbers", "\nWhat helps\n"]

    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "> train.py:88 in step" in text
    assert "+  it is inside a training step" in text
    assert "-  a Python thread of the process can run: the interpreter's lock is free" in text


@pytest.mark.costly
def test_equal_incidents_are_shown_once_with_a_line_for_each(tmp_path):
    text = printed(night(tmp_path, minutes=40, stalls=4))

    assert text.count("\n4 equal stalls  ") == 1
    assert len(re.findall(r"^ +Stall [1-4]  \d\d:\d\d:\d\d, .* lost, started again$", text, re.MULTILINE)) == 4
    assert text.count("tensorflow: 25 calls") == text.count("it is inside a training step\n") == 1


@pytest.mark.costly
def test_stacks_seen_before_are_not_shown_again(tmp_path):
    made = document.make(night(tmp_path, minutes=40, stalls=4), {}, dt.UTC)
    first, *_, fourth = made.incidents
    fourth = msgspec.structs.replace(fourth, causes=[])  # of the same stacks, and for another cause
    out = io.StringIO()
    two = msgspec.structs.replace(made, incidents=[first, fourth])
    print_blocks(terminal_page.blocks(two, 100), Console(file=out, width=100))

    assert out.getvalue().count("tensorflow: 25 calls") == 1
    assert "its stacks are those of stall 1" in out.getvalue()


def test_the_chart_shows_the_silence(run):
    text = printed(run)
    chart = text[text.index("Throughput") :].splitlines()[1]

    assert re.search(r"[▅-█]_____.[▅-█]{5}", chart)


def test_hostile_text_is_text(tmp_path):
    text = printed(hostile(tmp_path), force_terminal=True, color_system=None, width=400)

    assert EVIL in text
    assert "\x1b[2J" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert SECRET not in text


def test_markup_of_the_terminal_library_is_text(tmp_path):
    run = night(tmp_path, minutes=6, stalls=1)
    text = run.journal.read_text().replace("it is inside a training step", "[bold red]x[/] [link=y]")
    run.journal.write_text(text)

    assert "[bold red]x[/] [link=y]" in printed(run)


def test_why_there_are_no_stacks_is_said(tmp_path):
    run = night(tmp_path, minutes=6, stalls=1)
    manifest = run.incident(1) / "manifest.json"
    (run.incident(1) / "stacks.txt").unlink()
    text = manifest.read_text()
    manifest.write_text(text.replace('"state":"collected"', '"state":"nothing","why":"the process is stopped"', 1))

    assert "No Python stacks: the process is stopped." in printed(run)


def test_a_short_run_has_a_chart_without_holes_and_marks_at_one_place_stand_side_by_side(tmp_path):
    run = night(tmp_path, minutes=3, stalls=1)
    made = document.make(run, {}, dt.UTC)
    marks = [timeline.Mark("stall", 90.0, "1"), timeline.Mark("restart", 90.5, "2")]
    rate = next(panel for panel in made.timeline.panels if panel.key == "rate").series[0]
    thin = timeline.Panel("rate", "Throughput", "/s", [timeline.Series(rate.name, rate.values[::8])])
    few = msgspec.structs.replace(made.timeline, times=made.timeline.times[::8], marks=marks, panels=[thin])
    _, blocks, row, _ = [part.renderable.plain for part in terminal_page.chart(few, 72)]

    assert " " not in blocks.strip()
    assert len(blocks) == len(few.times)
    assert "!>" in row


def test_advice_stands_above_the_line_to_use(run):
    advised = printed(run).partition("\nWhat helps\n")[2]

    assert re.search(r"^  -  [A-Z].*\.$", advised, re.MULTILINE)
    assert re.search(r"^     \S.*[^.]$", advised, re.MULTILINE)


def test_a_run_that_crashes_before_its_first_batch_shows_its_last_words_and_no_empty_figures(tmp_path):
    run = night(tmp_path, minutes=3, stalls=0)
    crash = [(0, Launched(0.0, 1, 7)), (3, Exited(0.0, 1, 3)), (3, Announce("attempt.crashed", {"how": "exit code 3"}))]
    journal(run.journal, *crash)
    run.output.write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    text = printed(run)

    assert "The last output\n  Traceback (most recent call last):\n  KeyError: 'x'\n" in text
    assert "Throughput" not in text
    assert re.search(r"batches +none counted\n", text)
    assert " 0.0 s" not in text


def test_what_the_gpu_did_in_a_stall_stands_above_its_causes(tmp_path):
    run = RunDir(tmp_path / "runs" / "h200")
    run.path.mkdir(parents=True)
    shutil.copy(RECORDED / "h200_torch_kernel_without_end.jsonl", run.journal)
    text = printed(run)
    did = text.index("The GPU meanwhile: 100% busy, 1.51 GB in use, 118 W.")
    assert did < text.rindex("its thread waits in one")

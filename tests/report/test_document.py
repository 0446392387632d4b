"""The report of a run has what was recorded, on the clock of its user and without secrets."""

from __future__ import annotations

import datetime as dt
import gc
import shutil
from pathlib import Path

from stallguard.core.actions import Announce
from stallguard.core.device_account import Span
from stallguard.core.events import Exited, Launched, Sampled
from stallguard.core.readings import Device
from stallguard.report import document, html_page, labels
from stallguard.storage.paths import RunDir
from tests.report.nights import journal, night, page
from tests.report.test_incidents import END, SILENT, STALL, heartbeat

RECORDED = Path(__file__).parents[1] / "recordings" / "journals"


def test_what_is_not_exact_is_in_the_report_of_a_run_without_an_incident(tmp_path):
    run = RunDir(tmp_path / "runs" / "segments")
    run.path.mkdir(parents=True)
    said = Announce("attempt.inexact", {"text": "fit 1 goes back to the beginning of epoch 3"})
    journal(
        run.journal, (0, Launched(0.0, 1, 7)), (9, Exited(0.0, 1, -15)), (10, Launched(0.0, 2, 8)), (11, said), *END
    )
    assert document.make(run, {}).story.count("Not exact: fit 1 goes back to the beginning of epoch 3.") == 1


def test_what_is_not_exact_after_a_stall_is_part_of_its_incident(tmp_path):
    run = RunDir(tmp_path / "runs" / "stalled")
    run.path.mkdir(parents=True)
    said = Announce("attempt.inexact", {"text": "fit 1 starts over"})
    journal(run.journal, *STALL, (183, said), *END)
    assert "Not exact" not in " ".join(document.make(run, {}).story)


def test_a_secret_of_the_environment_is_removed_wherever_it_was_printed(tmp_path):
    run = night(tmp_path, minutes=4, stalls=0)
    run.output.write_text("connected with swordfish-12\n")

    assert "swordfish-12" in page(run).read_text()
    assert "swordfish-12" not in page(run, environment={"DB_PASSWORD": "swordfish-12"}).read_text()


def test_times_are_those_of_the_clock_on_the_wall(tmp_path):
    run = night(tmp_path, minutes=4, stalls=0)
    tokyo = dt.timezone(dt.timedelta(hours=9), "JST")

    made = document.make(run, {}, tokyo)

    assert (made.began, made.zone) == ("Sunday, 08 March 2026, 07:30", "JST")
    assert made.timeline.offset == 9 * 3600
    assert made.announced[0].clock == "07:30:00"


def test_a_run_without_anything_in_it_gives_a_report(tmp_path):
    gc.enable()
    made = document.make(RunDir(tmp_path), {}, dt.UTC)

    assert gc.isenabled(), "the search for garbage goes on after a report"
    assert "no batch" in made.story[0]
    assert "</html>" in html_page.render(made)


def test_what_the_gpu_did_in_a_stall_is_in_the_page_and_in_the_text_to_copy(tmp_path):
    run = RunDir(tmp_path / "runs" / "h200")
    run.path.mkdir(parents=True)
    shutil.copy(RECORDED / "h200_torch_kernel_without_end.jsonl", run.journal)
    made = document.make(run, {}, dt.UTC)

    [stall] = made.incidents
    assert stall.device.utilisation == Span(1.0, 1.0, 1.0)
    assert stall.device.seconds > 60.0
    assert labels.device(stall) == "The GPU meanwhile: 100% busy, 1.51 GB in use, 118 W."
    assert f"<p>{labels.device(stall)}</p>" in html_page.render(made)
    assert "100% busy" in html_page.incident(made, stall)


def test_of_several_trainings_the_gpu_of_the_one_that_stalled_is_shown_and_without_readings_none(tmp_path):
    run = RunDir(tmp_path / "runs" / "two")
    run.path.mkdir(parents=True)
    of_two = [(60, Sampled(0.0, Device(pid=pid, utilisation=busy))) for pid, busy in ((7, 1.0), (8, 0.25))]
    before = (*STALL[:1], heartbeat(50, 90, pid=8, epoch=0), *of_two)
    journal(run.journal, *before, (125, Announce("training.stalled", {**SILENT, "pid": "8"})), *STALL[4:], *END)
    [stall] = document.make(run, {}).incidents
    assert labels.device(stall) == "The GPU meanwhile: 25% busy."

    journal(run.journal, *STALL, *END)
    [stall] = document.make(run, {}).incidents
    assert (stall.device, labels.device(stall)) == (None, "")

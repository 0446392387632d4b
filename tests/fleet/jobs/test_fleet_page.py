"""The page of a fleet: what it says of machines, nights, jobs and incidents, and that nothing foreign acts in it."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest

from stallguard.core.time_spent import Spent
from stallguard.fleet.jobs import fleet_page
from stallguard.fleet.jobs.fleet_page import make
from stallguard.fleet.jobs.job_table import Fleet, JobRow, Span
from stallguard.fleet.jobs.readable_files import ReadableFiles
from stallguard.fleet.machines.machine_list import as_seen
from stallguard.fleet.store import orders
from stallguard.fleet.store.orders import Cordon, SchedulerCard, WorkerCard
from stallguard.fleet.store.records import Claim, Holder, HolderEnd, MachineRecord
from stallguard.report import incident_history, labels
from stallguard.storage import run_files
from tests.fleet.jobs.test_job_table import begin, end, publish, submit
from tests.fleet.jobs.test_view import member, store, verb  # noqa: F401 - fixtures
from tests.fleet.members import signs
from tests.report.test_incident_history import END, NEXT, stall
from tests.report.test_incident_history import run as sighted_run

NOW = dt.datetime(2026, 1, 2, 12, 0, tzinfo=dt.UTC)


def claim(host, number, at):
    return Claim(number=number, at=at, holder=Holder(host, "b", 1, "n"))


def outcome(code, at, why=""):
    return HolderEnd(number=1, claim=1, run="r", code=code, why=why, at=at)


def card(host, at="2026-01-02T11:59:30Z", **facts):
    return WorkerCard(schema=1, host=host, at=at, **({"state": "ready"} | facts))


def page(jobs=(), workers=(), cordons=(), machines=(), spans=(), ended=(), dashboard=""):
    fleet = Fleet(list(jobs), list(workers), list(cordons), [])
    return make("file:///s", fleet, machines, dict(spans), dict(ended), [], 0, dashboard, NOW)


def test_each_machine_has_its_state_and_what_is_not_known_stays_unknown():
    machine = MachineRecord(schema=1, host="old", boot="b", at="", version="1.0", about={"model": "Mac16,1"})
    made = page(
        workers=[
            card("air", resources={"slots": 1.0, "memory": 20.5, "metal": 1.0}),
            card("mini"),
            as_seen(card("pro", "2026-01-02T09:00:00Z", state="busy"), NOW),
        ],
        cordons=[Cordon(schema=1, host="mini", at="", why="its GPU hangs")],
        machines=[machine],
        jobs=[JobRow(job="a", state="running", machine="air", number=1)],
    )
    said = {one.host: (one.state, one.why) for one in made.machines}
    assert said["air"] == ("ready", "")
    assert said["mini"] == ("cordoned", "its GPU hangs")
    assert said["pro"] == ("silent", "its worker has not renewed its card: it is off, asleep or cut off")
    assert said["old"] == ("not known", "it has no worker")
    assert {one.host: one.jobs for one in made.machines}["air"] == ["a"]
    html = fleet_page.page_as_html(made)
    assert "not known" in html
    assert "Mac16,1" in html
    assert [text in html for text in ("1 slot<", "20.5 GB<", "1 metal<")] == [True] * 3


def test_a_night_shows_which_machine_had_which_job_and_how_it_ended():
    spans = {
        "a": [
            Span(claim("mini", 1, "2026-01-02T00:00:00Z"), "2026-01-02T06:00:00Z", outcome(75, "", "too late")),
            Span(claim("air", 2, "2026-01-02T06:00:00Z"), "", None),
        ],
        "b": [
            Span(claim("mini", 1, "2026-01-02T06:00:00Z"), "2026-01-02T09:00:00Z", outcome(1, "", "it failed")),
            Span(claim("mini", 2, "2026-01-02T09:00:00Z"), "2026-01-02T09:30:00Z", None),
        ],
        "old": [Span(claim("mini", 1, "2025-01-01T00:00:00Z"), "2025-01-02T00:00:00Z", None)],
        "damaged": [Span(claim("mini", 1, "yesterday"), "", None)],
    }
    made = page(jobs=[JobRow(job="a", state="running", machine="air", number=2)], spans=spans)
    lines = {line.host: [(bar.job, bar.how) for bar in line.bars] for line in made.nights}
    assert lines == {"air": [("a", "starting")], "mini": [("a", "training"), ("b", "lost"), ("b", "lost")]}
    [here] = [line.bars for line in made.nights if line.host == "mini"]
    # The lines begin a week ago, because a job of last year is in the log.
    week = 7 * 24
    assert here[0].x == pytest.approx(1000 * (week - 12) / week, abs=0.01)
    assert here[0].width == pytest.approx(1000 * 6 / week, abs=0.01)
    assert "too late" in here[0].words
    assert "how it ended is not known" in here[2].words


def test_a_job_shows_progress_and_effective_time_only_if_they_are_known():
    status = {"state": "running", "effective": 0.9, "attempt": 2, "progress": {"epoch": 4, "epochs": 10, "batch": 3}}
    made = page(
        jobs=[
            JobRow(job="a", state="running", status=status),
            JobRow(job="b", state="finished", code=0),
            JobRow(job="c", state="waiting"),
            JobRow(job="d", state="running", status={"progress": 7, "rates": []}),
        ],
        ended={"b": run_files.ended(0, "", Spent(training=1.0, stalled=1.0), attempts=3)},
    )
    said = [(one.progress, labels.share(one.effective), one.attempts) for one in made.jobs]
    assert said[0] == ("epoch 5 of 10, batch 3", "90 %", 2)
    assert said[1:] == [("", "50 %", 3), ("", "not known", None), ("", "not known", None)]


def test_nothing_of_the_store_acts_in_the_page(member, store, tmp_path):  # noqa: F811
    evil = "<script>alert(1)</script>"
    submit(store, "night")
    held = begin(store, "night", "mini")
    publish(store, held, tmp_path)
    end(store, held, 1, evil)
    evils = card("x", why=evil, about={evil: evil}, jobs=(evil,))
    store.replace(orders.WorkerCard.place(host="x"), orders.encode(evils, signs("x")))
    for address, shown in (("javascript:alert(1)", False), ("http://mini:8787/status", True)):
        scheduler = SchedulerCard(schema=1, host="mini", at="", dashboard=address)
        store.replace(orders.SCHEDULER, orders.encode(scheduler, signs("mini")))
        home = tmp_path / "a"
        home.mkdir(exist_ok=True)
        html = verb(home, "report", "--fleet", "--html", "-").stdout
        assert evil not in html
        assert "&lt;script&gt;alert(1)" in html
        assert (address in html) == shown
    assert not re.search(r"(?:src|href)=\"(?!http://mini)", html)
    assert "default-src &#39;none&#39;" in html


def test_the_page_is_made_from_the_store_with_the_incidents_of_the_runs(member, store, tmp_path):  # noqa: F811
    run = sighted_run(tmp_path, *stall(50, 1), NEXT, END)
    submit(store, "night")
    held = begin(store, "night", "mini")
    publish(store, held, tmp_path)
    ReadableFiles(store, "night", 1, "mini", run).renew()
    end(store, held, 0)
    home = tmp_path / "a"
    home.mkdir()
    said = verb(home, "report", "--fleet")
    assert said.stdout.strip() == str(home / "fleet" / "fleet.html")
    html = (home / "fleet" / "fleet.html").read_text()
    assert "train.py:3 in hang" in html
    assert "1 finished" in html
    made = json.loads(verb(home, "report", "--fleet", "--json").stdout)
    assert [one["row"]["job"] for one in made["jobs"]] == ["night"]
    assert [one["name"] for one in made["incidents"]] == [incident_history.of_run(run)[0].name]
    assert (made["left_out"], made["jobs"][0]["attempts"]) == (0, 2)
    explained = json.loads(verb(home, "report", "--json", "night").stdout)
    assert explained["incidents"][0]["where"] == "train.py:3 in hang"
    assert explained["incidents"][0]["evidence"]["stacks"]


def test_without_a_fleet_there_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    home = tmp_path / "a"
    home.mkdir()
    said = verb(home, "report", "--fleet", code=2).stderr
    assert "this machine is in no fleet" in said
    assert "stallguard report --fleet --store URL" in said

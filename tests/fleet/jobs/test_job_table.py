"""The table of all jobs of a store: what it says of each, and what it costs."""

from __future__ import annotations

import datetime as dt
import time

import msgspec
import pytest
from msgspec.structs import replace

from stallguard.fleet.jobs import archive, job_table, readable_files
from stallguard.fleet.jobs.generations import Found, Publication
from stallguard.fleet.machines import machine_list
from stallguard.fleet.store import StoreError, joblog, orders, within
from stallguard.fleet.store.orders import Code, Cordon, Refusal, Stop, Submission, WorkerCard
from stallguard.fleet.store.records import Holder, Position
from tests.fleet.members import signs

OWN, OTHER = signs("mini"), signs("mini", "other")  # a member of the fleet, and one of another
AT = "2026-01-01T10:00:00Z"


def submit(store, job, by=OWN, **facts):
    given = Submission(
        schema=1,
        job=job,
        words=("t.py",),
        options=(),
        code=Code(digest="a" * 64, size=1),
        by="ann@mini",
        at=AT,
        **facts,
    )
    store.create(orders.Submission.place(job=job), orders.encode(given, by))


def begin(store, job, host="mini"):
    tail = joblog.perform(joblog.read_end(job), store)
    holder = Holder(host=host, boot="b", pid=1, nonce=f"{time.monotonic()}")
    tail, won = joblog.perform(joblog.claim(job, tail, holder, "2026-01-01T11:00:00Z"), store)
    assert won
    return Publication(job, tail.number, tail)


def publish(store, publication, tmp_path, at="2026-01-01T12:00:00Z", batch=3):
    content = tmp_path / "content"
    content.write_text(at)
    found = [Found("p/fit-1/g1/x", 1, f"{len(at):064x}", content)]
    joblog.perform(publication.publish("run-1", at, Position(1, 2, batch), found), store)


def end(store, publication, code, why="it ended", **options):
    joblog.perform(publication.conclude("run-1", "2026-01-01T13:00:00Z", code, why, **options), store)


def of(store, job, signatures=OWN):
    [found] = [one for one in job_table.read(store, signatures).jobs if one.job == job]
    return found


def worker(store, host, **facts):
    now = dt.datetime.now(dt.UTC).isoformat()
    card = WorkerCard(schema=1, host=host, **({"at": now, "state": "ready"} | facts))
    store.replace(orders.WorkerCard.place(host=host), orders.encode(card, signs(host)))


def test_a_job_says_in_each_state_who_has_it_since_when_and_how_far_it_is(folder, tmp_path):
    submit(folder, "a", priority=3, sweep="s", needs={"metal": 1.0})
    waiting = of(folder, "a")
    assert (waiting.state, waiting.since, waiting.by, waiting.priority) == ("waiting", AT, "ann@mini", 3)
    assert waiting.why == "no machine of the fleet has a worker; on each that trains: stallguard fleet worker"
    held = begin(folder, "a")
    publish(folder, held, tmp_path)
    status = orders.RunStatus(1, "2026-01-01T12:00:10Z", {"state": "running", "rates": {"batches": 2.0}})
    folder.replace(readable_files.status_key("a", 1), msgspec.json.encode(status))
    running = of(folder, "a")
    assert (running.state, running.machine, running.number) == ("running", "mini", 1)
    assert (running.since, running.newest) == ("2026-01-01T11:00:00Z", "2026-01-01T12:00:00Z")
    assert running.position == Position(1, 2, 3)
    assert (running.heard, running.status["rates"]["batches"]) == (status.at, 2.0)
    end(folder, held, 0)
    finished = of(folder, "a")
    assert (finished.state, finished.code, finished.since) == ("finished", 0, "2026-01-01T13:00:00Z")
    assert (finished.machine, finished.run, finished.status) == ("mini", "run-1", {})


@pytest.mark.parametrize(
    ("submitted", "code", "final", "state"),
    [
        (True, 75, False, "waiting"),
        (False, 75, False, "ended"),
        (True, 1, False, "failed"),
        (True, 75, True, "stopped"),
        (False, 0, False, "finished"),
    ],
)
def test_the_end_of_a_run_is_not_always_that_of_its_job(folder, submitted, code, final, state):
    if submitted:
        submit(folder, "a")
    end(folder, begin(folder, "a"), code, final=final)
    found = of(folder, "a")
    assert (found.state, found.code, found.is_submitted) == (state, code, submitted)


@pytest.mark.parametrize(
    "link",
    [
        "jobs/planted", "jobs/planted/log", "jobs/planted/log/00000001", "jobs/planted/submission", "jobs/planted/stop",
        "jobs/planted/refusals", "workers/m9", "cordons/m9", "archive/2026-01-01", "live",
    ],
)  # fmt: skip
def test_a_link_that_a_stranger_plants_holds_up_nothing_but_its_own_entry(folder, tmp_path, link):
    submit(folder, "own")
    worker(folder, "mini", resources={"slots": 1.0})
    bystander = tmp_path / "bystander"
    bystander.mkdir()
    place = folder.folder / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(bystander)
    for found in (job_table.read(folder, OWN), archive.fleet(folder, OWN), archive.fleet(folder, OWN, is_alive=True)):
        states = {one.job: one.state for one in found.jobs}
        assert states.pop("own") == "waiting"
        assert states.keys() <= {"planted"}
        assert not {"running", "finished"} & {*states.values()}
        assert "mini" in [card.host for card in found.workers] or not found.workers
    assert [one.host for one in machine_list.read(folder, OWN, dt.datetime.now(dt.UTC))][-1] == "mini" or "m9" in link
    assert [*bystander.iterdir()] == []


def test_a_stop_counts_only_with_the_signature_of_the_fleet(folder):
    submit(folder, "a")
    stop = Stop(schema=1, job="a", by="ann@mini", at=AT)
    folder.replace(orders.Stop.place(job="a"), orders.encode(stop, OTHER))
    assert of(folder, "a").state == "waiting"
    folder.replace(orders.Stop.place(job="a"), orders.encode(stop, OWN))
    assert (of(folder, "a").state, of(folder, "a").why) == ("stopped", "stopped by ann@mini (signed by mini)")
    held = begin(folder, "a")
    assert of(folder, "a").why == "stopped by ann@mini (signed by mini): it is being ended"
    end(folder, held, 75)
    assert of(folder, "a").state == "stopped"


def test_a_submission_of_another_fleet_or_a_damaged_one_is_listed_as_refused(folder):
    submit(folder, "a", OTHER)
    folder.replace(orders.Submission.place(job="b"), b"\xff[[")
    assert of(folder, "a").state == of(folder, "b").state == "refused"
    assert "its signature is not of this fleet" in of(folder, "a").why
    assert "not a signed record" in of(folder, "b").why
    submit(folder, "c")
    assert "no fleet file" in of(folder, "c", signatures=None).why


def test_what_a_job_waits_for_names_each_machine(folder):
    submit(folder, "a", needs={"metal": 1.0, "memory": 32.0})
    worker(folder, "air", resources={"metal": 1.0, "memory": 8.0})
    worker(folder, "mini", resources={"metal": 1.0, "memory": 64.0})
    worker(folder, "pro", resources={"metal": 1.0, "memory": 64.0}, state="busy")
    worker(folder, "studio", resources={"metal": 1.0, "memory": 64.0})
    refusal = Refusal(schema=1, job="a", host="studio", worker="w1", at=AT, why="no wheel")
    folder.replace(f"{orders.refusals_folder('a')}/studio", orders.encode(refusal, signs("studio")))
    cordon = Cordon(schema=1, host="mini", at=AT, why="its GPU hangs")
    folder.replace(orders.Cordon.place(host="mini"), orders.encode(cordon, OWN))
    assert of(folder, "a").why == (
        "air has 8 of 32 memory; mini is cordoned (its GPU hangs); pro is busy; studio refuses it (no wheel)"
    )
    worker(folder, "studio", resources={"metal": 1.0, "memory": 64.0}, worker="w2")
    assert "studio can take it" in of(folder, "a").why  # a worker that began later is asked again
    worker(folder, "studio", resources={"metal": 1.0, "memory": 64.0}, at=AT)
    assert "studio refuses it" in of(folder, "a").why
    folder.replace(orders.Cordon.place(host="mini"), orders.encode(replace(cordon, is_lifted=True), OWN))
    worker(folder, "pro", resources={"metal": 1.0, "memory": 64.0}, at=AT)
    assert "mini can take it" in of(folder, "a").why
    assert "pro is silent (its worker has not renewed its card" in of(folder, "a").why
    for host in ("air", "mini", "pro"):
        folder.remove(orders.WorkerCard.place(host=host))
    assert of(folder, "a").state == "refused"


def test_the_holders_of_a_job_are_read_with_their_times(folder, tmp_path):
    first = begin(folder, "a", "mini")
    publish(folder, first, tmp_path)
    end(folder, first, 75, "too late")
    begin(folder, "a", "air")  # killed before it published
    third = begin(folder, "a", "pro")
    publish(folder, third, tmp_path, "2026-01-01T14:00:00.5Z", batch=4)
    tail = joblog.perform(joblog.read_end("a"), folder)
    spans = joblog.perform(job_table.history("a", tail), folder)
    assert [(one.claim.holder.host, one.until, one.end and one.end.why) for one in spans] == [
        ("mini", "2026-01-01T13:00:00Z", "too late"),
        ("air", "", None),
        ("pro", "2026-01-01T14:00:00.5Z", None),
    ]
    newest = joblog.perform(job_table.history("a", tail, most=1), folder)
    assert [one.claim.holder.host for one in newest] == ["pro"]


def test_a_job_takes_few_requests(folder):
    submit(folder, "a")
    for _ in range(30):
        end(folder, begin(folder, "a"), 75)
    asked = []

    class Counting:
        def __getattr__(self, name):
            return lambda *given: asked.append(name) or getattr(folder, name)(*given)

    job_table.read_job(Counting(), "a", OWN)
    assert len(asked) <= 8


def test_a_store_that_does_not_answer_costs_a_limited_time():
    with pytest.raises(StoreError, match="does not answer"):
        within(0.1, lambda: time.sleep(1.0))
    with pytest.raises(KeyError):
        within(5.0, lambda: {}["x"])


def test_how_a_run_stands_is_in_the_card_of_its_machine_and_else_in_a_key_of_its_own(folder):
    submit(folder, "a")
    begin(folder, "a")
    of_card = orders.RunStatus(1, "2026-01-01T12:01:00Z", {"state": "running", "batches": 2})
    own = orders.RunStatus(1, "2026-01-01T12:00:10Z", {"state": "running", "batches": 1})
    worker(folder, "mini", statuses={"a@1": of_card})
    assert (of(folder, "a").heard, of(folder, "a").status) == (of_card.at, of_card.status)
    folder.replace(readable_files.status_key("a", 1), msgspec.json.encode(own))
    assert of(folder, "a").status == of_card.status
    worker(folder, "mini", statuses={"a@1": of_card}, at="2026-01-01T12:01:00Z")  # its worker is silent
    assert of(folder, "a").status == own.status
    worker(folder, "mini", statuses={"a@2": of_card})
    assert of(folder, "a").status == own.status
    worker(folder, "other", statuses={"a@1": of_card})  # not its machine
    assert of(folder, "a").status == own.status
    folder.replace(readable_files.status_key("a", 1), b"{")
    assert (of(folder, "a").heard, of(folder, "a").status) == ("", {})

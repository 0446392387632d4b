"""Gathering keeps to its budgets and says what is missing, if a collector hangs or fails and if the disk is full."""

from __future__ import annotations

import resource
import threading
import time

import msgspec

from stallguard.collectors import Collector, Nothing, evidence_bundle
from tests.collectors.stuck import LONG, context, item
from tests.host.children import eventually


def quick(name, **more):
    return Collector(name, lambda _, sheet: sheet.text(f"{name}.txt", name), 1.0, 1000, **more)


def test_a_collector_that_hangs_costs_only_its_own_time(tmp_path, release):
    hang = Collector("hang", lambda *_: release.wait(LONG), 0.2, 1000, first=True)
    later = Collector("later", lambda *_: release.wait(LONG), 0.3, 1000)
    manifest = evidence_bundle.gather(context(tmp_path), [hang, quick("a", first=True), later, quick("b")])
    assert manifest.missing == ("hang", "later")
    assert item(manifest, "hang").state == "late"
    assert (tmp_path / "1/a.txt").exists()
    assert (tmp_path / "1/b.txt").exists()
    assert manifest.seconds < LONG / 2


def test_all_together_keep_to_the_whole_budget(tmp_path, release):
    hangs = [Collector(f"h{n}", lambda *_: release.wait(LONG), LONG, 1000, first=n < 2) for n in range(6)]
    began = time.monotonic()
    manifest = evidence_bundle.gather(context(tmp_path, budget=0.5), hangs)
    assert time.monotonic() - began < LONG / 2
    assert len(manifest.missing) == 6


def test_a_full_disk_still_tells_where_it_hangs(stuck):
    process = stuck("lock")
    asked = process.context()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Every write of this process fails, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        collected = evidence_bundle.collect(asked)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert collected.where == process.at("it.acquire()  # here", "lock")
    assert "stacks" in collected.missing
    assert process.process.poll() is None


def test_a_directory_that_cannot_be_made_is_no_reason_to_raise(stuck):
    process = stuck("lock")
    (process.run / "incidents").write_text("a file in the way")
    collected = evidence_bundle.collect(process.context())
    assert collected.where == process.at("it.acquire()  # here", "lock")


def test_a_collector_that_fails_or_finds_nothing_is_reported(tmp_path):
    def fails(*_):
        raise ValueError("token=abcdefgh")

    def finds_nothing(*_):
        raise Nothing("there is none")

    manifest = evidence_bundle.gather(
        context(tmp_path), [Collector("f", fails, 1, 1), Collector("n", finds_nothing, 1, 1), quick("q")]
    )
    assert item(manifest, "f").why == "ValueError: token=[removed: secret]"
    assert (item(manifest, "n").state, item(manifest, "n").why) == ("nothing", "there is none")
    assert manifest.missing == ("f",)


def manifest_of(place):
    return msgspec.json.decode((place / "1/manifest.json").read_bytes(), type=evidence_bundle.Manifest)


def test_what_does_not_need_the_process_holds_up_no_restart_and_is_kept_when_it_ends(tmp_path):
    over = threading.Event()

    def slow(_context, sheet):
        over.wait(LONG)
        sheet.text("log.txt", "the log")

    log = Collector("log", slow, LONG, 1000, outlasts=True)
    began = time.monotonic()
    manifest = evidence_bundle.gather(context(tmp_path, budget=LONG, lives_on=True), [log, quick("a")])
    assert time.monotonic() - began < LONG / 2
    assert (item(manifest, "log").state, manifest.missing) == ("pending", ())
    assert item(manifest_of(tmp_path), "log").state == "pending"

    over.set()

    assert eventually(lambda: item(manifest_of(tmp_path), "log").state == "collected")
    assert (tmp_path / "1/log.txt").read_text() == "the log"
    assert item(manifest_of(tmp_path), "a").state == "collected"


def test_what_outlasts_the_restart_has_its_own_end(tmp_path, release):
    log = Collector("log", lambda *_: release.wait(LONG), 0.2, 1000, outlasts=True)
    evidence_bundle.gather(context(tmp_path, lives_on=True), [log])
    assert eventually(lambda: item(manifest_of(tmp_path), "log").state == "late")


def test_a_process_that_ends_with_its_bundle_waits_for_all_of_it(tmp_path):
    def slow(_context, sheet):
        time.sleep(0.2)
        sheet.text("log.txt", "the log")

    log = Collector("log", slow, LONG, 1000, outlasts=True)
    assert item(evidence_bundle.gather(context(tmp_path, budget=LONG), [log]), "log").state == "collected"

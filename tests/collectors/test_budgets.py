"""Whatever a collector or the disk does, gathering keeps to its budgets and says what is missing."""

from __future__ import annotations

import resource
import threading
import time

import msgspec

from stallguard.collectors import Collector, Nothing, collector_registry, evidence_bundle, fit
from stallguard.host.types import Tool
from tests.collectors.stuck import LONG, SECRET, context, item
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


def test_a_late_collector_writes_nothing_any_more(tmp_path):
    late, done = threading.Event(), threading.Event()

    def slow(_context, sheet):
        late.wait(LONG)
        sheet.text("late.txt", "x")
        done.set()

    def longer(*_):  # begins when the other one's time is over, and is there until it has written
        late.set()
        done.wait(LONG)

    collectors = [Collector("slow", slow, 0.1, 1000, first=True), Collector("longer", longer, LONG, 1000)]
    manifest = evidence_bundle.gather(context(tmp_path, budget=LONG), collectors)
    assert done.is_set()
    assert item(manifest, "slow").state == "late"
    assert not (tmp_path / "1/late.txt").exists()


def test_a_collector_that_floods_is_cut_and_says_so(tmp_path):
    def flood(_context, sheet):
        for number in range(100):
            sheet.text(f"flood{number}.txt", "line\n" * 100_000)

    manifest = evidence_bundle.gather(context(tmp_path), [Collector("flood", flood, LONG, 1_000_000)])
    assert sum(path.stat().st_size for path in (tmp_path / "1").iterdir()) < 1_100_000
    assert any(file.cut for file in item(manifest, "flood").files)


def kept(folder, command, seconds, size):
    """Return what is kept of a tool's output, and why that is not all."""
    tool = Tool("tool", ("/bin/sh", "-c", command), seconds, size)
    gather = collector_registry._tool(tool).gather
    manifest = evidence_bundle.gather(context(folder), [Collector("tool", gather, LONG, size)])
    return (folder / "1/tool.txt").read_text(), item(manifest, "tool").why


def test_the_output_of_a_tool_that_floods_hangs_or_fails_is_kept(tmp_path):
    began = time.monotonic()
    flood = kept(tmp_path / "flood", "yes", LONG, 100_000)
    assert flood == ("y\n" * 50_000, "it printed too much and was killed")
    hang = kept(tmp_path / "hang", "echo so far; sleep 60 & sleep 60", 0.3, 1000)
    assert hang == ("so far\n", "it did not end in time and was killed")
    failed = kept(tmp_path / "failed", "echo no >&2; exit 3", LONG, 1000)
    assert failed == ("no\n", "it ended with exit code 3")
    assert time.monotonic() - began < 5


def test_half_a_secret_at_the_cut_is_not_written(tmp_path):
    text = "x" * 900 + "\n" + "y" * 90 + " " + SECRET + "\n"

    def write(_context, sheet):
        sheet.text("cut.txt", text)

    evidence_bundle.gather(
        context(tmp_path, environment={"MY_TOKEN": SECRET}), [Collector("c", write, 1.0, 1000)]
    )
    assert b"s3cr" not in (tmp_path / "1/cut.txt").read_bytes()
    assert fit(b"no line at all " * 100, 1000) == (b"no line at all " * 100)[:488]


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


def test_a_plug_in_gathers_too_and_a_broken_one_is_reported(tmp_path, monkeypatch):
    (tmp_path / "lib/extra-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "lib/extra-1.0.dist-info/METADATA").write_text("Name: extra\nVersion: 1.0\n")
    (tmp_path / "lib/extra-1.0.dist-info/entry_points.txt").write_text(
        "[stallguard.collectors]\nextra = extra_collector:IT\nbroken = extra_collector:ABSENT\n"
    )
    (tmp_path / "lib/extra_collector.py").write_text(
        "from stallguard.collectors import Collector\n"
        "IT = Collector('extra', lambda context, sheet: sheet.text('extra.txt', 'hi'), 1.0, 100)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    manifest = evidence_bundle.gather(context(tmp_path))
    assert (tmp_path / "1/extra.txt").read_text() == "hi"
    assert item(manifest, "broken").state == "failed"


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

"""What people read of a run: put into the store while it lives, and brought to another machine."""

from __future__ import annotations

import json

import msgspec
import pytest

from stallguard.fleet.jobs import mirror, readable_files
from stallguard.fleet.jobs.readable_files import CHUNK, Growing, Index, ReadableFiles, Whole
from stallguard.fleet.store import StoreError, orders
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.records import Damaged
from stallguard.storage import run_files
from stallguard.storage.paths import RunDir

RUN = "20260101-100000Z-night"


class Counting:
    """A store that counts requests, and loses what `loses` names."""

    def __init__(self, store):
        self.store, self.url, self.asked, self.loses = store, store.url, [], ""

    def __getattr__(self, name):
        def do(key, *given):
            self.asked.append((name, key))
            if self.loses and self.loses in key:
                raise StoreError("lost")
            return getattr(self.store, name)(key, *given)

        return do


@pytest.fixture
def run(tmp_path):
    made = RunDir(tmp_path / "runs" / RUN)
    made.path.mkdir(parents=True)
    made.asked.write_text(json.dumps({"schema": 2, "run": RUN, "command": ["t.py"], "argv": [], "cwd": "/",
                                      "started": "2026-01-01T10:00:00Z",
                                      "supervisor": {"pid": 1, "started": 0.0}}))  # fmt: skip
    made.journal.write_text("{}\n")
    made.output.write_bytes(b"begins\n")
    return made


@pytest.fixture
def store(url):
    return Counting(open_store(url))


@pytest.fixture
def readable(store, run):
    return ReadableFiles(store, "job", 3, "mini", run)


@pytest.fixture
def bring(store, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "here"))

    def do(*, lives=True):
        return mirror.bring(store, "job", 3, lives=lives)

    return do


def add(path, text):
    with path.open("ab") as file:
        file.write(text)


def test_a_copy_has_what_the_run_has_and_says_where_it_lives(readable, bring, run):
    evidence = run.incident(1) / "stacks.txt"
    evidence.parent.mkdir(parents=True)
    evidence.write_text("a stack")
    (run.incident(1) / "core.bin").write_bytes(b"x")
    readable.renew()
    here = bring()
    assert here.id == RUN
    assert here.output.read_bytes() == b"begins\n"
    assert (here.incident(1) / "stacks.txt").read_text() == "a stack"
    assert not (here.incident(1) / "core.bin").exists()
    assert run_files.state(here) == "running"
    assert run_files.state(bring(lives=False)) == "lost"


def test_only_what_changed_is_put_and_fetched(readable, bring, store, run):
    add(run.output, bytes(CHUNK))
    readable.renew()
    bring()
    store.asked.clear()
    readable.renew()
    assert store.asked == []
    add(run.output, b"more\n")
    readable.renew()
    assert [(do, key.rpartition("/runs/3/")[2]) for do, key in store.asked] == [
        ("replace", "parts/2/1"), ("replace", "index"),
    ]  # fmt: skip
    store.asked.clear()
    inode = bring().output.stat().st_ino
    assert len(store.asked) == 2
    assert bring().output.read_bytes() == run.output.read_bytes()
    assert bring().output.stat().st_ino == inode  # it can be followed


def test_a_journal_whose_part_is_turned_is_not_put_again(readable, bring, store, run):
    add(run.journal, b"x" * CHUNK)
    readable.renew()
    bring()
    store.asked.clear()
    run.journal.rename(run.path / "journal.1.jsonl")
    run.journal.write_text("new\n")
    readable.renew()
    assert len([key for _, key in store.asked if "/parts/" in key]) == 1
    here = bring()
    assert here.journal.read_text() == "new\n"
    assert (here.path / "journal.1.jsonl").read_bytes() == (run.path / "journal.1.jsonl").read_bytes()


@pytest.mark.costly
def test_of_a_large_output_the_beginning_and_the_newest_are_there_with_a_note(readable, bring, run, store, monkeypatch):
    monkeypatch.setitem(readable_files.MOST, "output", 3 * CHUNK)
    for number in range(40):
        add(run.output, b"%06d\n" % number * (CHUNK // 20))
        readable.renew()
        if number == 20:
            bring()
    kept = store.store.names("jobs/job/runs/3/parts/2")
    assert len(kept) <= 4
    text = bring().output.read_text()
    assert text.startswith("begins\n")
    assert "bytes are left out here; they are on mini alone" in text
    assert text.endswith("000039\n")
    assert text.count("000039\n") == CHUNK // 20
    monkeypatch.setenv("STALLGUARD_HOME", str(run.path / "fresh"))
    fresh = bring().output.read_text()
    assert fresh.count("left out here") == 1
    assert fresh.endswith(text[-CHUNK:])


def test_a_failed_put_is_made_up_for(readable, bring, store, run):
    store.loses = "/parts/"
    with pytest.raises(StoreError):
        readable.renew()
    store.loses = ""
    add(run.output, b"more\n")
    readable.renew()
    assert bring().output.read_bytes() == b"begins\nmore\n"


def test_an_output_that_was_truncated_is_put_anew(readable, bring, run):
    readable.renew()
    bring()
    run.output.write_bytes(b"again\n")
    readable.renew()
    assert bring().output.read_bytes() == b"again\n"


def test_a_copy_that_was_interrupted_is_made_anew(readable, bring, run):
    readable.renew()
    add(bring().output, b"half")
    add(run.output, b"more\n")
    readable.renew()
    assert bring().output.read_bytes() == b"begins\nmore\n"


@pytest.mark.parametrize(
    "change",
    [
        {"run": "../x"},
        {"run": ""},
        {"schema": 9},
        {"files": (Whole("../../x.json", 1, ""),)},
        {"files": (Whole("incidents/../../x.json", 1, ""),)},
        {"files": (Whole("attempt.json", 1, ""),)},
        {"files": (Whole("elsewhere.json", 1, ""),)},
        {"growing": (Growing("../journal.jsonl", 1, 1),)},
        {"growing": (Growing("x.log", 1, 1),)},
        {"growing": (Growing("output.log", 1, 1, 5, 9),)},
        {"growing": (Growing("output.log", 1, 1 << 60),)},  # its chunks alone would fill the memory
    ],
)
def test_what_could_write_elsewhere_is_refused(bring, store, change, tmp_path):
    index = msgspec.structs.replace(Index(1, RUN, "mini", ""), **change)
    store.replace(readable_files.index_key("job", 3), msgspec.json.encode(index))
    with pytest.raises(Damaged):
        bring()
    assert not list(tmp_path.rglob("x*.json"))


def test_a_run_that_is_not_in_the_store_is_none(bring):
    assert bring() is None


class Clock:
    def __init__(self, happens=lambda: None):
        self.now, self.happens = 0.0, happens

    def sleep(self, seconds):
        self.now += seconds
        self.happens()


def test_a_reader_waits_until_the_machine_has_put_what_is_new(readable, store, run, bring):
    store.replace(orders.SCHEDULER, b"{}")
    readable.renew()
    add(run.output, b"goes on\n")
    clock = Clock(lambda: readable.renew(is_read=True) if clock.now > 3 else None)
    assert mirror.renew(store, "job", 3, now=lambda: clock.now, sleep=clock.sleep) == ""
    assert clock.now < mirror.PATIENCE
    assert store.store.names("news") == ["job@reader"]
    assert bring().output.read_bytes() == b"begins\ngoes on\n"


def test_a_reader_waits_for_no_machine_that_does_not_answer_and_none_that_it_cannot_ask(readable, store):
    readable.renew()
    clock = Clock()
    assert mirror.renew(store, "job", 3, now=lambda: clock.now, sleep=clock.sleep) == ""
    assert (clock.now, store.store.names("news")) == (0.0, [])  # there is no scheduler
    store.replace(orders.SCHEDULER, b"{}")
    assert "not answered" in mirror.renew(store, "job", 3, now=lambda: clock.now, sleep=clock.sleep)
    assert clock.now == mirror.PATIENCE
    store.loses = "news/"
    assert "cannot be asked" in mirror.renew(store, "job", 3, now=lambda: clock.now, sleep=clock.sleep)
    assert clock.now == mirror.PATIENCE

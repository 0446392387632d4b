"""What a user meets when the store of a fleet is absent, full, read-only, another one, or does not answer."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time

import pytest

from stallguard.errors import CANNOT_RUN
from stallguard.fleet.store import StoreError, records
from stallguard.fleet.store.folder_store import FolderStore
from tests.fleet.lab import ASKING, LIMIT, LISTS, ROOT, WRITING, card, content, fill, make, text_of

pytestmark = pytest.mark.live


@pytest.mark.parametrize("verb", ASKING)
def test_a_store_whose_share_is_not_mounted_is_named_and_not_made(lab, verb):
    (lab.place / "store").rename(lab.place / "away")
    said = lab.refused(*ASKING[verb])
    assert f"there is no folder {lab.place}/store; is its share mounted?" in said
    assert "doctor" in said
    assert not (lab.place / "store").exists()


def test_a_share_that_goes_away_in_the_middle_of_a_write_is_not_made_on_the_local_disk(tmp_path):
    store, source = FolderStore(tmp_path / "store"), tmp_path / "source"
    (tmp_path / "store").mkdir()
    os.mkfifo(source)
    failed = []

    def put():
        try:
            store.put("jobs/a/data/1/x", source)
        except StoreError as error:
            failed.append(str(error))

    writer = threading.Thread(target=put)
    writer.start()
    with source.open("wb") as file:
        while not list((tmp_path / "store").glob(".drafts/*")):
            time.sleep(0.01)
        (tmp_path / "store").rename(tmp_path / "away")
        file.write(b"x")
    writer.join(LIMIT)
    # Its directories are open: what was begun is written into the store that it was begun in.
    assert not failed
    assert (tmp_path / "away/jobs/a/data/1/x").read_bytes() == b"x"
    assert not (tmp_path / "store").exists()
    with pytest.raises(StoreError, match="is its share mounted"):
        store.put("jobs/a/data/1/y", tmp_path / "away/jobs/a/data/1/x")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("verb", ASKING)
@pytest.mark.parametrize("is_emptied", [True, False])
def test_another_folder_in_place_of_the_store_is_neither_read_nor_written(lab, verb, is_emptied):
    """A training from the beginning would be the worst of the answers."""
    (lab.place / "store").rename(lab.place / "away")
    (lab.place / "store").mkdir()
    if not is_emptied:
        make(lab.place, lab.place / "other.toml", lab.place / "store")
    before = content(lab.place / "store")
    said = lab.refused(*ASKING[verb])
    assert f"is not the store of this fleet, {lab.member.fleet}" in " ".join(said.split())
    assert ("it was emptied" if is_emptied else "it is that of fleet-") in said
    assert content(lab.place / "store") == before


def test_lists_say_in_a_line_that_the_jobs_are_missing(lab):
    (lab.store.folder / "fleet" / "content").write_bytes(b"\xff\0")
    for words in LISTS:
        said = lab.verb(*words, code=0)
        assert said.count("the jobs of the fleet are missing: ") == 1
        assert "does not say which fleet it belongs to" in said


def test_the_runs_of_this_machine_are_read_without_the_store(lab):
    lab.verb("run", "--name", "own", "t.py", code=0)
    (lab.place / "store").rename(lab.place / "away")
    assert "trained" in lab.verb("logs", "own", "--output", code=0)
    lab.file.chmod(0o644)
    assert "is not private" in lab.verb("status", "own", code=0)


@pytest.mark.parametrize("verb", WRITING)
@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_store_that_cannot_be_written_is_an_error_of_each_verb_that_writes(lab, mounted, state, verb):
    lab.verb("fleet", "submit", "--name", "j", "t.py", code=0)
    card(lab, "mini")
    if state == "full":
        fill(lab)
    else:
        mounted("ro")
    before = content(lab.store.folder)
    said = lab.verb(*ASKING[verb], code=CANNOT_RUN)
    assert ("No space left on device" if state == "full" else "Read-only file system") in said
    assert "cannot be used" in said
    assert "doctor" in said
    assert content(lab.store.folder) == before
    for words in (("fleet", "machines"), ("status", "j"), ("ls", "--live")):
        assert lab.verb(*words, code=0)


def test_no_fleet_is_made_in_a_store_that_is_full_or_read_only(lab, mounted):
    fill(lab)
    for text in ("No space left", "Read-only"):
        lab.env["STALLGUARD_FLEET"] = str(lab.place / "new.toml")
        assert text in lab.refused("fleet", "init", "--store", f"file://{lab.place}/mount/store")
        assert not (lab.place / "new.toml").exists()
        mounted("ro")


def test_a_training_goes_on_while_the_store_is_full_and_publishes_when_there_is_room(lab, mounted):
    script = lab.project / "long.py"
    script.write_text((ROOT / "tests/fleet/scripts/count.py").read_text())
    quick = ("--set", "store.lease=6s", "--set", "checkpoint.cost=1", "--set", "store.if_away=continue")
    run = lab.start(
        "run", "--python", sys.executable, "--store", "{store}", "--job", "j", *quick,
        "--checkpoint-every", "0.3s", "long.py", "400", "0.05",
    )  # fmt: skip
    log = lab.store.folder / "jobs/j/log"
    end = time.monotonic() + LIMIT
    while not log.is_dir() or len(list(log.iterdir())) < 2:  # the claim, and a checkpoint
        assert time.monotonic() < end, text_of(run)
        time.sleep(0.1)
    while "No space left on device" not in text_of(run):  # what is published removes older files
        fill(lab)
        assert time.monotonic() < end, text_of(run)
        time.sleep(0.02)
    fill(lab)
    kept = len(list(log.iterdir()))
    time.sleep(2)
    assert run.poll() is None
    assert len(list(log.iterdir())) <= kept + 1
    (lab.place / "mount" / "other").unlink()
    assert run.wait(LIMIT) == 0
    said = text_of(run)
    assert said.count("a checkpoint is not published") == 1, said
    assert "finished" in lab.verb("status", "j", code=0)


def test_an_end_that_a_full_store_does_not_take_is_kept_here_and_published_later(lab, mounted):
    script = lab.project / "long.py"
    script.write_text((ROOT / "tests/fleet/scripts/count.py").read_text())
    words = (
        "run", "--python", sys.executable, "--store", "{store}", "--job", "j", "--set", "store.lease=6s",
        "--set", "store.if_away=continue", "long.py", "60", "0.05",
    )  # fmt: skip
    run = lab.start(*words)
    log = lab.store.folder / "jobs/j/log"
    end = time.monotonic() + LIMIT
    while not log.is_dir() or not list(log.iterdir()):  # the claim
        assert time.monotonic() < end, text_of(run)
        time.sleep(0.05)
    while run.poll() is None:
        fill(lab)
        assert time.monotonic() < end, text_of(run)
        time.sleep(0.1)
    assert run.returncode == 0
    assert "the end of this run is not published" in text_of(run)
    assert "published later by this machine's worker or by the next run of the job here" in text_of(run)
    names = lab.store.names("jobs/j/log")
    entries = [records.decode(lab.store.read(f"jobs/j/log/{name}")) for name in names]
    assert not [one for one in entries if isinstance(one, records.HolderEnd)]
    (lab.place / "mount" / "other").unlink()
    again = lab.start(*words)
    assert again.wait(LIMIT) == 0
    assert "job j is done" in text_of(again)
    assert "begins at" not in text_of(again)  # it is not trained again
    assert "finished" in lab.verb("status", "j", code=0)


def test_a_bucket_that_is_missing_is_not_taken_for_an_empty_store(lab, monkeypatch):
    pytest.importorskip("obstore")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        lab.env |= {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test"}
        lab.env |= {"AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        lab.change(store="s3://absent/lab")
        for verb in ("machines", "submit", "run", "status", "page"):
            assert "there is no bucket absent" in lab.refused(*ASKING[verb])
        assert "there is no bucket absent" in lab.verb("ls", "--live", code=0)
    finally:
        server.stop()


def test_a_server_that_never_answers_costs_each_verb_a_limited_time(lab):
    pytest.importorskip("obstore")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lab.env |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}", "AWS_ACCESS_KEY_ID": "x"}
        lab.env |= {"AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
        lab.change(store="s3://lab/fleet")
        asked = {verb: lab.start(*ASKING[verb]) for verb in ("machines", "submit", "worker", "status", "run")}
        for verb, process in asked.items():
            assert process.wait(LIMIT) == CANNOT_RUN, verb
            assert "it does not answer within" in text_of(process), text_of(process)

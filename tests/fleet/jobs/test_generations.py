"""The state that is published: what it has, how far it is, that it comes back."""

from __future__ import annotations

import json
import os
import shutil
import zlib

import pytest

from stallguard.fleet.jobs import generations
from stallguard.fleet.jobs.generations import Digests, Publication, Unstable, freeze, listing
from stallguard.fleet.store import joblog, records
from stallguard.fleet.store.joblog import Fenced, perform
from stallguard.fleet.store.records import Damaged, Holder, Position
from stallguard.storage.paths import RunDir
from tests.damage import change_last_byte

HOLDER = Holder(host="h", boot="b", pid=1, nonce="n")


def save(checkpoints, place, number, epoch=0, batch=0, finished=False, between=False):
    """Write a generation as the probe does."""
    folder = checkpoints / place / f"g{number}"
    folder.mkdir(parents=True)
    facts = json.dumps({"epoch": epoch, "epochs": 5, "executions": batch, "finished": finished}).encode()
    (folder / "facts.json").write_bytes(b"%08x\n" % zlib.crc32(facts) + facts)
    (folder / "tensors.bin").write_bytes(os.urandom(100))
    for pointer in ("CURRENT", *(["BETWEEN_EPOCHS"] if between else [])):
        (folder.parent / pointer).write_text(f"g{number}")


@pytest.fixture
def checkpoints(tmp_path):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    return tmp_path / "run" / "checkpoints"


def test_a_frozen_state_has_what_a_resume_needs_and_nothing_else(checkpoints, tmp_path):
    save(checkpoints, "p-1/fit-0001", 1, between=True)
    for number in (2, 3, 4):
        save(checkpoints, "p-1/fit-0001", number, epoch=1, batch=number)
    (checkpoints / "seed").write_text("5")
    (checkpoints / "p-1/fit-0001/files").mkdir()
    (checkpoints / "p-1/fit-0001/files/1").write_text("log")
    (checkpoints / "p-1/fit-0001/tmp-g5-77").mkdir()
    frozen = freeze(checkpoints, tmp_path / "frozen")
    shutil.rmtree(checkpoints)  # the training replaces its generations meanwhile
    found = {path.relative_to(frozen.folder).as_posix() for path in frozen.folder.rglob("*") if path.is_file()}
    fit = "p-1/fit-0001"
    assert found == {
        "seed", f"{fit}/CURRENT", f"{fit}/BETWEEN_EPOCHS", f"{fit}/files/1",
        *(f"{fit}/{name}/{file}" for name in ("g1", "g4") for file in ("facts.json", "tensors.bin")),
    }  # fmt: skip
    assert frozen.listing == {fit: ("g1", "g4")}


def test_a_state_of_two_moments_is_not_published(checkpoints, tmp_path, monkeypatch):
    save(checkpoints, "p-1/fit-0001", 1)
    link, number = generations._link_fit, [1]

    def and_the_training_saves(*args):
        link(*args)
        number[0] += 1
        save(checkpoints, "p-1/fit-0001", number[0])

    monkeypatch.setattr(generations, "_link_fit", and_the_training_saves)
    with pytest.raises(Unstable):
        freeze(checkpoints, tmp_path / "frozen")


def position(checkpoints, tmp_path):
    return freeze(checkpoints, tmp_path / "frozen").position


def test_each_step_of_a_run_is_further_than_the_one_before(checkpoints, tmp_path):
    seen = []
    steps = [
        ("p-1/fit-0001", 1, 0, 3, False), ("p-1/fit-0001", 2, 1, 0, False), ("p-1/fit-0001", 3, 5, 0, False),
        ("p-1/fit-0001", 4, 5, 0, True), ("p-1/fit-0002", 1, 0, 1, False), ("q-1/fit-0001", 1, 0, 0, False),
        ("q-1/fit-0001", 2, 0, 2, False), ("p-1/fit-0002", 2, 0, 2, False),
    ]  # fmt: skip
    for place, number, epoch, batch, finished in steps:
        save(checkpoints, place, number, epoch, batch, finished)
        seen.append(position(checkpoints, tmp_path))
    assert seen == sorted(set(seen))


def test_the_position_of_a_loop_of_the_scripts_own_is_not_known(checkpoints, tmp_path):
    save(checkpoints, "p-1/fit-0001", 1)
    (checkpoints / "p-1/loop/g1").mkdir(parents=True)
    (checkpoints / "p-1/loop/g1/facts.json").write_bytes(b"00000000\n{}")
    assert position(checkpoints, tmp_path) is None


def published(folder, frozen, tail=None):
    tail = tail or perform(joblog.claim("job", joblog.Tail(), HOLDER, ""), folder)[0]
    publication = Publication("job", tail.number, tail)
    perform(publication.publish("run", "", frozen.position, Digests().found(frozen)), folder)
    return publication


def test_what_is_published_comes_back(checkpoints, folder, tmp_path):
    save(checkpoints, "p-1/fit-0001", 1, batch=7)
    (checkpoints / "p-1/fit-0001/g1/empty").write_bytes(b"")
    frozen = freeze(checkpoints, tmp_path / "frozen")
    generation = published(folder, frozen).tail.generation
    assert generation.position == Position(1, 0, 7)
    generations.fetch_generation(folder, "job", generation, RunDir(tmp_path / "back"))
    assert listing(tmp_path / "back/checkpoints") == frozen.listing
    for path in frozen.folder.rglob("*"):
        if path.is_file():
            back = tmp_path / "back/checkpoints" / path.relative_to(frozen.folder)
            assert back.read_bytes() == path.read_bytes()
            assert back.stat().st_mode & 0o077 == 0


def test_what_trackers_go_on_with_is_published_and_comes_back_but_is_no_progress(checkpoints, folder, tmp_path):
    save(checkpoints, "p-1/loop-1", 1)
    run, back = RunDir(checkpoints.parent), RunDir(tmp_path / "back")
    run.trackers.mkdir()
    (run.trackers / "0af3-1.wandb-run.1").write_text("abc")
    mine = published(folder, freeze(checkpoints, tmp_path / "frozen", run.trackers))
    generation = mine.tail.generation
    generations.fetch_generation(folder, "job", generation, back)
    assert (back.trackers / "0af3-1.wandb-run.1").read_text() == "abc"
    assert not (back.checkpoints / "trackers").exists()
    assert back.has_checkpoints()
    (run.trackers / "0af3-1.wandb-run.2").write_text("def")
    again = Digests().found(freeze(checkpoints, tmp_path / "frozen", run.trackers))
    perform(mine.publish("run", "", None, again), folder)
    assert mine.tail.generation == generation


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({}, ""),
        ({"kernel": "6.2", "memory": 5, "python": "3.13"}, ""),
        ({"chip": "Apple M2"}, "Apple M1 -> Apple M2"),
        ({"system": "Linux", "chip": None}, "macOS -> Linux, Apple M1 -> unknown"),
        ({"version": "15.2"}, "15.1 -> 15.2"),
    ],
)
def test_what_can_change_bits_is_named(now, says):
    before = {"system": "macOS", "version": "15.1", "machine": "arm64", "chip": "Apple M1", "kernel": "24", "memory": 4}
    assert generations.differences(before, before | now) == says


@pytest.mark.parametrize(
    "harm",
    [change_last_byte, lambda path: path.write_bytes(path.read_bytes()[:-1]), lambda path: path.unlink()],
    ids=["changed", "cut", "gone"],
)
def test_a_damaged_file_is_refused_and_leaves_nothing(checkpoints, folder, tmp_path, harm):
    save(checkpoints, "p-1/fit-0001", 1)
    generation = published(folder, freeze(checkpoints, tmp_path / "frozen")).tail.generation
    name = next(file.name for file in generation.files if file.path.endswith("tensors.bin"))
    harm(folder.folder / records.data_key("job", 1, name))
    with pytest.raises(Damaged):
        generations.fetch_generation(folder, "job", generation, RunDir(tmp_path / "back"))
    assert not (tmp_path / "back").exists()


def test_the_store_keeps_the_newest_two_and_uploads_what_is_new(checkpoints, folder, tmp_path):
    (checkpoints / "seed").write_text("5")
    save(checkpoints, "p-1/fit-0001", 1, finished=True)
    mine, digests = None, Digests()
    for number in range(1, 6):
        save(checkpoints, "p-1/fit-0002", number, batch=number)
        frozen = freeze(checkpoints, tmp_path / "frozen")
        mine = mine or published(folder, frozen)
        perform(mine.publish("run", "", frozen.position, digests.found(frozen)), folder)
        perform(mine.clean(), folder)
    kept = {file.name for entry in mine._kept for file in entry.files}
    assert set(folder.names("jobs/job/data/1")) == kept
    seeds = {file.name for entry in mine._kept for file in entry.files if file.path == "seed"}
    assert len(seeds) == 1  # put once


def test_a_run_whose_checkpoints_have_the_newest_generation_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    for name in ("1-a", "2-b"):
        run = RunDir(tmp_path / "runs" / name)
        save(run.checkpoints, "p-1/fit-0001", 1)
        (run.path / "run.json").write_text("{}")
    generations.keep(RunDir(tmp_path / "runs" / "1-a"), "file:///s", "job", 4)
    generations.keep(RunDir(tmp_path / "runs" / "2-b"), "file:///s", "job", 3)
    assert generations.newest("file:///s", "job", 4).id == "1-a"
    assert generations.newest("file:///s", "job", 5) is None
    assert generations.newest("file:///s", "other", 4) is None


def test_an_old_number_is_refused_when_it_publishes(checkpoints, folder, tmp_path):
    save(checkpoints, "p-1/fit-0001", 1)
    old = published(folder, freeze(checkpoints, tmp_path / "frozen"))
    perform(joblog.claim("job", old.tail, HOLDER, ""), folder)
    save(checkpoints, "p-1/fit-0001", 2, epoch=3)
    later = freeze(checkpoints, tmp_path / "frozen")
    with pytest.raises(Fenced):
        perform(old.publish("run", "", later.position, Digests().found(later)), folder)
    assert perform(joblog.read_end("job"), folder).newest == 2


def test_what_is_not_further_is_not_published_again(checkpoints, folder, tmp_path):
    save(checkpoints, "p-1/fit-0001", 1, epoch=2)
    mine = published(folder, freeze(checkpoints, tmp_path / "frozen"))
    shutil.rmtree(checkpoints)
    save(checkpoints, "p-1/fit-0001", 1, epoch=1)  # another machine had to start over
    frozen = freeze(checkpoints, tmp_path / "frozen")
    perform(mine.publish("run", "", frozen.position, Digests().found(frozen)), folder)
    assert mine.tail.generation.position.epoch == 2
    assert mine.tail.slot == 2

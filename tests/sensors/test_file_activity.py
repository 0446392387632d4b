"""Freshness of checkpoints and logs, in real directories watched for real."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from watchdog.events import FileModifiedEvent

from stallguard.core.readings import Files
from stallguard.sensors import Target, file_activity
from stallguard.sensors.file_activity import FilesSensor
from tests.host.children import eventually
from tests.sensors.clocks import Hands

HOME = Path("/Users/me")


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def sensor(tmp_path: Path, hands: Hands) -> Iterator[FilesSensor]:
    made = FilesSensor(Target(places=(tmp_path,), mine=(tmp_path / "mine",)), hands)
    yield made
    made.close()


def reads(sensor: FilesSensor, path: Path) -> bool:
    reading = sensor.read()
    return reading is not None and reading.path == str(path)


def test_what_the_library_logs_is_not_printed(sensor: FilesSensor, monkeypatch, capsys) -> None:
    logging.getLogger("watchdog").handlers.clear()  # those of another test
    sensor.read()
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
    logging.getLogger("watchdog.observers.inotify").error("stopped between two events")
    assert capsys.readouterr().err == ""


def test_nothing_known_is_nothing_said(sensor: FilesSensor, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    assert sensor.read() is None


def test_a_checkpoint_is_being_written_until_it_is_closed(sensor: FilesSensor, tmp_path: Path, hands: Hands) -> None:
    sensor.read()
    path = tmp_path / "model.keras"
    with path.open("wb", buffering=0) as file:
        file.write(b"x" * 1000)
        assert eventually(lambda: reads(sensor, path))
        for _ in range(3):
            hands.now += 4.0
            file.write(b"x" * 1000)
            assert sensor.read().writing is True
    assert eventually(lambda: sensor.read() is not None and sensor._known[str(path)].closed)
    hands.now += 2.0
    reading = sensor.read()
    assert reading.writing is False
    assert reading.size == 4000
    assert reading.age == pytest.approx(2.0, abs=0.1)


def test_a_checkpoint_left_open_is_no_longer_written_after_a_while(
    sensor: FilesSensor, tmp_path: Path, hands: Hands
) -> None:
    sensor.read()
    path = tmp_path / "weights.h5"
    with path.open("wb") as file:
        file.write(b"x")
        file.flush()
        assert eventually(lambda: reads(sensor, path))
        hands.now += 4.9
        assert sensor.read().writing is True
        hands.now += 0.2
        assert sensor.read().writing is False


def test_a_checkpoint_renamed_into_place_is_found(sensor: FilesSensor, tmp_path: Path) -> None:
    sensor.read()
    (tmp_path / "scratch").write_bytes(b"x" * 10)
    (tmp_path / "scratch").rename(tmp_path / "best.keras")
    assert eventually(lambda: reads(sensor, tmp_path / "best.keras"))


def test_a_checkpoint_in_a_directory_made_later_is_found(sensor: FilesSensor, tmp_path: Path) -> None:
    sensor.read()
    (tmp_path / "checkpoints" / "epoch-1").mkdir(parents=True)
    path = tmp_path / "checkpoints" / "epoch-1" / "part.bin"

    def written() -> bool:
        path.write_bytes(b"x")
        return reads(sensor, path)

    assert eventually(written)


def test_old_checkpoints_are_known_with_their_age_and_a_newer_log_does_not_hide_them(
    tmp_path: Path, hands: Hands
) -> None:
    old = tmp_path / "old.keras"
    old.write_bytes(b"x")
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    (tmp_path / "train.log").write_text("epoch 1")
    sensor = FilesSensor(Target(places=(tmp_path,)), hands)
    reading = sensor.read()
    sensor.close()
    assert reading.path == str(old)
    assert reading.age == pytest.approx(3600, abs=5)
    assert reading.writing is False


def test_an_old_checkpoint_overwritten_in_place_is_being_written(tmp_path: Path, hands: Hands) -> None:
    old = tmp_path / "last.keras"
    old.write_bytes(b"x")
    os.utime(old, (time.time() - 3600, time.time() - 3600))
    sensor = FilesSensor(Target(places=(tmp_path,)), hands)
    sensor.read()
    with old.open("wb", buffering=0) as file:
        file.write(b"y" * 10)
        writing = sensor.read().writing
    sensor.close()
    assert writing is True


def test_what_we_write_ourselves_is_not_the_trainings_doing(sensor: FilesSensor, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    sensor.read()
    (tmp_path / "mine" / "backup.keras").write_bytes(b"x")
    (tmp_path / "its.keras").write_bytes(b"x")
    assert eventually(lambda: reads(sensor, tmp_path / "its.keras"))
    assert list(sensor._known) == [str(tmp_path / "its.keras")]


def test_a_deleted_checkpoint_is_forgotten(sensor: FilesSensor, tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    path.write_bytes(b"x")
    assert eventually(lambda: reads(sensor, path))
    path.unlink()
    assert eventually(lambda: sensor.read() is None)


def test_a_new_place_is_watched_as_soon_as_it_is_named(sensor: FilesSensor, tmp_path: Path) -> None:
    sensor._target.places = ()
    sensor.read()
    sensor._target.places = (tmp_path,)
    sensor.read()
    (tmp_path / "a.keras").write_bytes(b"x")
    assert eventually(lambda: reads(sensor, tmp_path / "a.keras"))


def test_a_place_that_does_not_exist_is_no_error(hands: Hands) -> None:
    sensor = FilesSensor(Target(places=(Path("/no/such/place"),)), hands)
    assert sensor.read() is None
    sensor.close()


def test_a_flood_of_files_ends_the_watch_for_a_while(
    sensor: FilesSensor, tmp_path: Path, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_activity, "FLOOD", 20.0)
    sensor.read()
    for number in range(200):
        (tmp_path / f"cache-{number}").write_bytes(b"")
    assert eventually(lambda: sensor._events > 200)
    hands.now += 2.0
    sensor.read()
    assert sensor._observer is None
    hands.now += file_activity.PAUSE + 1
    sensor.read()
    assert sensor._observer is not None


def test_few_files_are_followed_however_many_checkpoints_there_are(
    sensor: FilesSensor, tmp_path: Path, hands: Hands
) -> None:
    sensor.read()
    for number in range(100):
        (tmp_path / f"{number}.keras").write_bytes(b"x")
    assert eventually(lambda: isinstance(sensor.read(), Files) and len(sensor._known) == file_activity.KNOWN_MAX)


def test_a_huge_tree_is_watched_at_its_top_and_where_checkpoints_go(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "data" / str(number)).mkdir(parents=True)
    (tmp_path / "checkpoints").mkdir()
    assert file_activity.plan(tmp_path, HOME) == [(tmp_path, False), (tmp_path / "checkpoints", True)]
    assert file_activity.plan(tmp_path / "checkpoints", HOME) == [(tmp_path / "checkpoints", True)]


def test_a_link_to_a_huge_tree_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "all").symlink_to("/")
    assert file_activity.is_small(tmp_path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/w/model.keras", "checkpoint"),
        ("/w/epoch-01.weights.h5", "checkpoint"),
        ("/w/ckpt-12.data-00000-of-00001", "checkpoint"),
        ("/w/ckpt-12.data-00000-of-00001.tempstate1234", "checkpoint"),
        ("/w/ckpt-12.index", "checkpoint"),
        ("/w/checkpoint", "checkpoint"),
        ("/w/saved_model.pb", "checkpoint"),
        ("/w/last.pt.tmp", "checkpoint"),
        ("/w/model.safetensors.incomplete", "checkpoint"),
        ("/w/checkpoints/anything.bin", "checkpoint"),
        ("/w/train.log", "log"),
        ("/w/history.csv", "log"),
        ("/w/events.out.tfevents.1700000000.host.123.0.v2", "log"),
        ("/w/ckpt/400/array", "checkpoint"),
        ("/checkpoint-study/w/run/photo.jpg", None),
        ("/w/train.py", None),
        ("/w/photo.jpg", None),
        ("/w/index", None),
    ],
)
def test_checkpoints_and_logs_are_known_by_name(path: str, kind: str | None) -> None:
    assert file_activity.kind(path) == kind


@pytest.mark.parametrize("place", ["", "Library", "Documents", "Library/Mobile Documents"])
def test_the_home_and_guarded_folders_are_not_walked(tmp_path: Path, monkeypatch, place: str) -> None:
    home = tmp_path / "Users" / "me"
    (home / place / "Pictures").mkdir(parents=True)
    (home / place / "checkpoints").mkdir()
    looked: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (looked.append(str(path)), scandir(path))[1])

    assert file_activity.plan(home / place, home) == [(home / place, False), (home / place / "checkpoints", True)]
    assert set(looked) == {str(home / place), str(home / place / "checkpoints")}


@pytest.mark.parametrize("place", ["", "Users"])
def test_what_is_above_the_home_is_not_walked(tmp_path: Path, place: str) -> None:
    (tmp_path / "Users" / "me" / "Documents").mkdir(parents=True)
    assert file_activity.plan(tmp_path / place, tmp_path / "Users" / "me") == [(tmp_path / place, False)]


@pytest.mark.parametrize("place", ["project", "Documents/project", "Library/Application Support/project"])
def test_a_project_is_watched_whole_wherever_it_is(tmp_path: Path, place: str) -> None:
    (tmp_path / place / "deep").mkdir(parents=True)
    assert file_activity.plan(tmp_path / place, tmp_path) == [(tmp_path / place, True)]


def test_on_a_mac_a_deep_checkpoint_that_is_overwritten_is_found(tmp_path: Path, hands: Hands) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "last.keras").write_bytes(b"x")
    sensor = FilesSensor(Target(places=(tmp_path,)), hands, fsevents=True)
    try:
        assert sensor.read() is None

        def found() -> bool:
            (deep / "last.keras").write_bytes(b"y" * 10)
            return reads(sensor, deep / "last.keras")

        assert eventually(found)
    finally:
        sensor.close()


def test_on_a_mac_one_directory_is_listed_because_a_stream_would_bring_the_events_of_its_tree(
    tmp_path: Path, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    sensor = FilesSensor(Target(places=(tmp_path,)), hands, fsevents=True)
    try:
        sensor.read()
        assert [emitter.watch.path for emitter in sensor._observer.emitters] == [str(tmp_path / "checkpoints")]
        (tmp_path / "best.keras").write_bytes(b"x")
        assert reads(sensor, tmp_path / "best.keras")
        (tmp_path / "best.keras").unlink()
        (tmp_path / "checkpoints" / "1.bin").write_bytes(b"x")
        assert eventually(lambda: reads(sensor, tmp_path / "checkpoints" / "1.bin"))
    finally:
        sensor.close()


def test_on_a_mac_a_log_that_grows_fast_is_no_flood(
    tmp_path: Path, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_activity, "FLOOD", 20.0)
    sensor = FilesSensor(Target(places=(tmp_path,)), hands, fsevents=True)
    try:
        sensor.read()
        (tmp_path / "train.log").write_bytes(b"x")
        assert eventually(lambda: reads(sensor, tmp_path / "train.log"))
        for _ in range(200):
            sensor.dispatch(FileModifiedEvent(str(tmp_path / "train.log")))
        hands.now += 2.0
        sensor.read()
        assert sensor._observer is not None
    finally:
        sensor.close()

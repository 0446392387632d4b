"""Directories and sockets are the owner's alone, with any umask, also if they existed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallguard.errors import StallguardError
from stallguard.launch import earlier_run, environment
from stallguard.storage import journal, learned_store, paths, private, run_files
from stallguard.storage.journal import Journal
from stallguard.storage.run_files import AttemptRecord
from stallguard.supervisor.control import Control
from stallguard.supervisor.heartbeats import HeartbeatListener
from stallguard.supervisor.output_log import OutputLog

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory to another user")
ANOTHER = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "deep" / "home"
    monkeypatch.setenv("STALLGUARD_HOME", str(place))
    return place


@pytest.fixture(params=[0, 0o777], ids=["umask 0", "umask 0777"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_all_of_a_run_is_the_owners_alone(home: Path, umask: None) -> None:
    run = paths.new_run("train", "20260101-000000", trial=True)
    place = paths.socket_dir(owner=run.path)
    beats = HeartbeatListener(place, run.probe, lambda _event: None, time.monotonic)
    control = Control(place / "control", lambda _event: None, time.monotonic, dict)
    try:
        run_files.keep_asked(run, run_files.RunRequest(2, run.id, [], [], "/", "", run_files.Identity(1, 0.0)))
        run_files.keep_room(run)
        Journal(run.journal, print).close()
        log = OutputLog(run.output, print, 1 << 20)
        log.write(b"x")
        log.close()
        environment.run_seed(run.checkpoints)
        learned_store.keep_sizes(learned_store.CommandKey(("train.py",), "/", "", ""), learned_store.BatchSizes(rows=8))
        found = [*home.rglob("*"), home, home.parent, place, *place.iterdir()]
        wrong = {
            str(path): oct(mode(path))
            for path in found
            if not path.is_symlink() and mode(path) != (0o700 if path.is_dir() else 0o600)
        }
    finally:
        control.close()
        beats.close()
        paths.remove_sockets(place)
    assert {path.name for path in found} >= {"runs", "probe", "beats", "control", "journal.jsonl", "run.json"}
    assert wrong == {}


def test_a_data_directory_that_was_open_to_others_is_closed(home: Path) -> None:
    for name in ("runs", "s", "learned"):
        (home / name).mkdir(parents=True)
        (home / name).chmod(0o777)
    paths.new_run("train", "20260101-000000")
    paths.remove_sockets(paths.socket_dir())
    learned_store.keep_sizes(learned_store.CommandKey(("train.py",), "/", "", ""), learned_store.BatchSizes(rows=8))

    assert [oct(mode(home / name)) for name in ("runs", "s", "learned")] == ["0o700"] * 3


@AS_ROOT
def test_runs_are_not_put_where_another_user_can_exchange_them(home: Path) -> None:
    (home / "runs").mkdir(parents=True)
    os.chown(home / "runs", ANOTHER, ANOTHER)
    with pytest.raises(StallguardError) as error:
        paths.new_run("train", "20260101-000000")

    assert "another user" in error.value.why
    assert list((home / "runs").iterdir()) == []


@AS_ROOT
def test_sockets_are_not_put_where_another_user_can_exchange_them(home: Path) -> None:
    (home / "s").mkdir(parents=True)
    os.chown(home / "s", ANOTHER, ANOTHER)
    wide = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        paths.remove_sockets(paths.socket_dir(str(wide)))  # short enough
        wide.chmod(0o777)
        with pytest.raises(StallguardError):
            paths.socket_dir(str(wide))
    finally:
        wide.rmdir()
    place = paths.socket_dir()
    paths.remove_sockets(place)

    assert place.parent != home / "s"


@AS_ROOT
@pytest.mark.parametrize("how", ["directory", "link", "wide"])
def test_a_name_that_another_user_took_gets_no_socket(how: str) -> None:
    """In /tmp anybody can make a directory of the name of one that a cleaner removed."""
    with tempfile.TemporaryDirectory() as short:  # the path of a socket has 104 bytes on macOS
        folder = Path(short)
        folder.chmod(0o755)
        place, elsewhere = folder / "stallguard-12345678", folder / "elsewhere"
        private.make(place)
        control = Control(place / "control", lambda _event: None, time.monotonic, dict)
        try:
            shutil.rmtree(place)
            elsewhere.mkdir()
            if how == "link":
                place.symlink_to(elsewhere)
            else:
                place.mkdir()
                place.chmod(0o700)
                if how == "directory":
                    os.chown(place, ANOTHER, ANOTHER)
                else:
                    place.chmod(0o770)
            with pytest.raises(PermissionError):
                control._named.renew()
        finally:
            control.close()
        assert not any(elsewhere.iterdir())


def test_only_what_belongs_in_it_is_removed_from_a_directory_of_sockets(tmp_path: Path) -> None:
    """The path comes from a file of the run, which can be anybody's."""
    run = paths.RunDir(tmp_path / "run")
    private.make(run.path)
    precious = tmp_path / "precious"
    private.make(precious)
    (precious / "thesis.tex").write_text("mine")
    (tmp_path / "link").symlink_to(precious)
    for place in (precious, tmp_path / "link"):
        ended = AttemptRecord(1, 1, run_files.Identity(999_999, 0.0, "?"), 7, str(place))
        run_files.write(run.asked, run_files.RunRequest(2, "run", [], [], "/", "", ended.process))
        earlier_run.end_orphan(run, ended)

        assert (precious / "thesis.tex").read_text() == "mine"


@AS_ROOT
def test_a_process_that_another_user_names_is_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = paths.RunDir(tmp_path / "run")
    private.make(run.path)
    run_files.keep_attempt(run, AttemptRecord(1, 1, run_files.identity(os.getpid()), 7, str(tmp_path)))
    assert run_files.recall_attempt(run) is not None
    os.chown(run_files.attempt_file(run), ANOTHER, ANOTHER)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert run_files.recall_attempt(run) is None


LINKS = ("journal.jsonl", "output.log", ".outcome.room", "stallguard.stacks", ".run.saved.{pid}", ".outcome.json.{pid}")


@pytest.mark.parametrize("name", LINKS)
def test_a_link_in_a_run_is_not_written_through(tmp_path: Path, name: str) -> None:
    run, mine = paths.RunDir(tmp_path / "run"), tmp_path / "mine"
    private.make(run.path)
    mine.write_text("mine")
    name = name.format(pid=os.getpid())
    (run.path / name).symlink_to(mine)
    troubles: list[str] = []
    end = run_files.Outcome(2, 0, "", "", 1.0, 0, 0, 1, 0.0)
    for write in (
        lambda: Journal(run.journal, troubles.append).close(),
        lambda: OutputLog(run.output, troubles.append, 1 << 20).write(b"x"),
        lambda: run_files.keep_room(run),
        lambda: run_files.conclude(run, end),
        lambda: journal.save_snapshot(run, end, journal.JournalPosition(1, 0, b"")),
        lambda: private.write(run.path / "stallguard.stacks", b"x"),
    ):
        try:
            write()
        except OSError as error:
            troubles.append(str(error.strerror))

    assert mine.read_text() == "mine"
    assert run_files.outcome(run) == end  # the others are written

"""What the doctor finds of a fleet that is really there, or not."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import socket
import threading
from pathlib import Path

import pytest

from stallguard.doctor.checks import examine
from stallguard.doctor.facts import FAIL, OK, WARN
from stallguard.fleet.machines import member_tls, trial
from stallguard.fleet.machines.trial import PROMISES, tried
from stallguard.fleet.store.opening import open_store
from tests.doctor.scene import MAC, spoiled

ROOT = Path(__file__).parents[3]


pytest.importorskip("cryptography")
CHECKS = ("fleet", "certificates", "scheduler", "fleet's store")


def rows():
    """Return severity and text of each finding of the fleet of this home."""
    facts = spoiled(MAC, fleet=trial.fleet_facts(os.environ))
    return {one.name: (one.severity, one.what) for one in examine(facts) if one.name in CHECKS}


@contextlib.contextmanager
def listening(context=None):
    """Yield an address on which a member, with this context, greets one visitor."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve():
            plain, _ = server.accept()
            with plain, contextlib.suppress(OSError), made["context"].wrap_socket(plain, server_side=True) as line:
                line.sendall(b"greeting")
                line.recv(1)

        made = {"context": context}
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", made
        with contextlib.suppress(OSError):  # no connection was made
            socket.create_connection(server.getsockname(), timeout=1).close()
        thread.join(10)


def test_a_machine_in_no_fleet_has_no_rows(home):
    assert rows() == {}


@pytest.mark.costly
def test_a_whole_fleet_is_fine(found):
    with listening() as (address, made):
        member = found(address, days=100)
        made["context"] = member_tls.context(member, is_server=True)
        seen = rows()
    assert {name: severity for name, (severity, _) in seen.items()} == dict.fromkeys(CHECKS, OK)
    assert "lasts 100 days" in seen["certificates"][1]
    assert sorted(path.name for path in Path(member.store.removeprefix("file://")).glob("[!.]*")) == [
        "fleet",
        "probe",
        "revoked",
    ]


@pytest.mark.costly
def test_a_scheduler_of_another_fleet_is_a_failure_and_an_absent_one_a_warning(found, tmp_path):
    with listening() as (address, made):
        found(address)
        stranger = found(store="other", file=tmp_path / "stranger.toml")
        made["context"] = member_tls.context(stranger, is_server=True)
        severity, what = rows()["scheduler"]
    assert severity == FAIL
    assert "another fleet" in what
    assert rows()["scheduler"][0] == WARN


def test_a_store_that_is_away_is_a_warning_and_one_of_another_fleet_a_failure_that_is_left_alone(found, tmp_path):
    first = found()
    (tmp_path / "store").rename(tmp_path / "away")
    assert rows()["fleet's store"][0] == WARN
    found(store="third", file=tmp_path / "third.toml")
    (tmp_path / "third").rename(tmp_path / "store")
    before = sorted((tmp_path / "store").rglob("*"))
    severity, what = rows()["fleet's store"]
    assert severity == FAIL
    assert first.fleet in what
    assert sorted((tmp_path / "store").rglob("*")) == before
    assert trial.fleet_facts(os.environ).store.promises == (), "nothing was tried there"


def test_expired_certificates_and_an_open_file_are_failures(found, home):
    found(now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    severity, what = rows()["certificates"]
    assert severity == FAIL
    assert "expired" in what
    (home / ".config/stallguard/fleet.toml").chmod(0o644)
    assert rows() == {"fleet": (FAIL, rows()["fleet"][1])}
    assert "is not private" in rows()["fleet"][1]


@pytest.mark.costly
def test_each_kind_of_store_keeps_each_promise(url, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = tried(open_store(url))
    assert [one.promise for one in found] == list(PROMISES)
    assert all(one.kept for one in found), found


@pytest.mark.costly
def test_the_probe_leaves_nothing_behind(url, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    store = open_store(url)
    tried(store)
    assert list(store.names("probe")) == []


class Broken:
    """A store whose methods are those of a good one, but for the given."""

    def __init__(self, store, **changed):
        self.url, self._store, self._changed = store.url, store, changed

    def __getattr__(self, name):
        return self._changed.get(name, getattr(self._store, name))


@pytest.mark.costly
@pytest.mark.parametrize(
    ("method", "change", "promise"),
    [
        ("create", lambda store: lambda key, data: store.replace(key, data) or True, "exclusive creation"),
        ("create", lambda store: lambda key, data: store.read(key) is None and store.create(key, data),
         "exclusive creation"),
        ("replace", lambda store: store.create, "whole replacement"),
        ("names", lambda store: lambda folder: [], "listing after a write"),
        ("put", lambda store: lambda key, file: store.replace(key, file.read_bytes()[:-1]), "whole files"),
    ],
    ids=["overwrites", "looks before it writes", "keeps the old", "lists nothing", "cuts"],
)  # fmt: skip
def test_the_probe_names_the_promise_that_is_broken(folder, method, change, promise, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found = tried(Broken(folder, **{method: change(folder)}))
    assert promise in [one.promise for one in found if not one.kept], found

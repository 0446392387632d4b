"""The verbs for a job that another machine trains: real runs, a real store, a second home as the other machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

from stallguard.fleet.jobs import readable_files, view
from stallguard.fleet.store import membership, opening, orders, records
from stallguard.fleet.store.folder_store import FolderStore
from tests import command_line
from tests.fleet.jobs.test_held_run import PATIENCE, ROOT, Lab
from tests.fleet.jobs.test_job_table import AT, OWN, begin, end, submit

HOST = os.uname().nodename


@pytest.fixture
def member(tmp_path, monkeypatch):
    """Make this process and those that it starts members of a fleet; return the URL of its store."""
    (tmp_path / "store").mkdir()
    url = f"file://{tmp_path / 'store'}"
    mine = replace(OWN.member, store=url)
    membership.write(tmp_path / "fleet.toml", mine, replace=False)
    monkeypatch.setenv("STALLGUARD_FLEET", str(tmp_path / "fleet.toml"))
    opening.claim_store(FolderStore(tmp_path / "store"), mine)
    return url


@pytest.fixture
def lab(member, tmp_path):
    made = Lab(tmp_path, member)
    yield made
    made.close()


@pytest.fixture
def store(tmp_path):
    (tmp_path / "store").mkdir(exist_ok=True)
    return FolderStore(tmp_path / "store")


def verb(home, *words, code=0):
    env = {**os.environ, "STALLGUARD_HOME": str(home), "PYTHONPATH": str(ROOT), "TZ": "UTC"}
    done = command_line.stallguard(*words, env=env, cwd=home.parent)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.live
def test_a_job_that_another_machine_trains_is_watched_and_stopped_from_here(lab, store, tmp_path):
    here = tmp_path / "b"
    here.mkdir()
    first = lab.start("a", steps=4000)

    def beats():
        data = store.read(readable_files.status_key("count", 1))
        return data and json.loads(data)["status"].get("batches", 0) > 0

    lab.until_published(1)
    lab.until(beats)
    [job] = json.loads(verb(here, "ls", "--live", "--json").stdout)["jobs"]
    assert (job["job"], job["state"], job["machine"], job["number"]) == ("count", "running", HOST, 1)
    assert job["status"]["batches"] > 0
    line = verb(here, "ls", "--live").stdout
    assert "count" in line and HOST in line  # noqa: PT018
    assert HOST in verb(here, "ls").stdout
    shown = verb(here, "status", "count").stdout
    assert f"{HOST}, holder 1" in shown
    assert "batches" in shown
    logged = verb(here, "logs", "count")
    assert f"job count on {HOST}" in logged.stderr
    assert "guard" in logged.stdout
    assert "begins at 0" in verb(here, "logs", "--output", "count").stdout
    report = json.loads(verb(here, "report", "--json", "count").stdout)
    assert report["state"] == "running"
    assert report["first"]["command"] == "stallguard status count"
    [night] = json.loads(verb(here, "morning", "--json").stdout)["runs"]
    assert (night["machine"], night["fleet_job"]) == (HOST, "count")
    # On its own machine the run itself is shown, not the copy.
    assert "is trained on this machine" in verb(tmp_path / "a", "status", "count").stderr

    began = time.monotonic()
    assert "ends its training" in verb(here, "stop", "count").stderr
    assert first.wait(PATIENCE) == 75, lab.text(first)
    assert time.monotonic() - began < 30
    assert "you asked" in lab.text(first)
    lab.until(lambda: isinstance(lab.log()[-1], records.HolderEnd))
    assert lab.log()[-1].final
    assert isinstance(lab.log()[-2], records.Generation)
    second = lab.start("b", steps=4000)
    assert second.wait(PATIENCE) == 126
    assert "was stopped" in lab.text(second)
    assert "begins" not in lab.text(second)
    assert "stopped" in verb(here, "status", "count", code=1).stdout
    assert "is over" in verb(here, "stop", "count", code=1).stderr
    del os.environ["STALLGUARD_FLEET"]  # the log says it too, to a machine without the fleet file
    third = lab.start("c", steps=4000)
    assert third.wait(PATIENCE) == 126
    assert len([e for e in lab.log() if isinstance(e, records.Claim)]) == 1


@pytest.mark.live
def test_a_log_is_followed_to_the_end_of_the_run(lab, store, tmp_path):
    here = tmp_path / "b"
    here.mkdir()
    lab.start("a", steps=300)
    lab.until(lambda: store.read(readable_files.index_key("count", 1)) is not None)
    followed = verb(here, "logs", "-f", "--output", "count").stdout
    assert "begins at 0" in followed
    assert followed.splitlines()[-1].startswith("digest ")


def test_without_its_store_the_runs_of_this_machine_are_still_listed(member, tmp_path):
    (tmp_path / "store").rename(tmp_path / "away")
    home = tmp_path / "a"
    home.mkdir()
    for words in (("ls", "--live"), ("ls",), ("morning",)):
        said = verb(home, *words).stderr
        assert said.count("the jobs of the fleet are missing") == 1
        assert "is its share mounted?" in said
    made = json.loads(verb(home, "ls", "--live", "--json").stdout)
    assert made["runs"] == made["jobs"] == []
    assert "is its share mounted?" in made["missing"]


@pytest.mark.waits
def test_a_store_that_hangs_costs_a_limited_time(member, monkeypatch):
    monkeypatch.setattr(view, "READS", 0.2)
    monkeypatch.setattr(FolderStore, "names", lambda *_: time.sleep(2.0))
    began = time.monotonic()
    said: list[str] = []
    assert view.listed(None, said.append)[0] is None
    assert time.monotonic() - began < 1.5
    assert "does not answer" in said[-1]
    time.sleep(2.0)  # its thread ends


def test_a_stop_before_anything_was_trained_is_signed_and_final(member, store, tmp_path):
    home = tmp_path / "a"
    home.mkdir()
    submit(store, "night")
    assert "no machine of the fleet takes it" in verb(home, "stop", "night").stderr
    stop = orders.decode_stop(store.read(orders.Stop.place(job="night")), OWN, "night")
    assert stop.by.endswith(f"@{HOST}")
    assert "stopped" in verb(home, "ls").stdout


def test_a_name_that_is_no_job_is_an_error_with_the_nearest(member, store, tmp_path):
    home = tmp_path / "a"
    home.mkdir()
    submit(store, "resnet-a")
    said = verb(home, "status", "--store", member, "resnet-b", code=3).stderr
    assert "did you mean resnet-a?" in said
    assert "there is nothing to read of job resnet-a yet" in verb(home, "logs", "resnet-a", code=1).stderr
    end(store, begin(store, "resnet-a"), 1, "it failed")
    assert "has had 1 holder, not 2" in verb(home, "report", "resnet-a/2", code=3).stderr


def test_a_run_of_this_machine_of_that_name_comes_first_and_is_named(member, store, tmp_path):
    run = tmp_path / "a" / "runs" / "20260101-100000Z-night"
    run.mkdir(parents=True)
    run.joinpath("run.json").write_text(json.dumps({
        "schema": 2, "run": run.name, "command": ["t.py"], "argv": [], "cwd": "/", "started": AT,
        "supervisor": {"pid": 1, "started": 0.0},
    }))  # fmt: skip
    submit(store, "night")
    chosen = verb(tmp_path / "a", "status", "night", code=1)
    assert f"run {run.name} of this machine" in chosen.stderr
    assert "lost" in chosen.stdout
    assert "waiting" in verb(tmp_path / "a", "status", "--store", member, "night").stdout


def test_a_machine_in_no_fleet_imports_nothing_of_one(tmp_path):
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path)}
    code = (
        "import sys\nfrom stallguard.cli import main\ntry:\n    main(['ls', '--live'])\nexcept SystemExit:\n    pass\n"
        "print(*(name for name in sys.modules if name.startswith('stallguard.fleet')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )  # fmt: skip
    assert done.returncode == 0
    assert "no run is alive" in done.stderr
    assert set(done.stdout.split()) == {
        "stallguard.fleet",
        "stallguard.fleet.jobs",
        "stallguard.fleet.jobs.view",
        "stallguard.fleet.seam",
        "stallguard.fleet.store",
        "stallguard.fleet.store.membership",
    }

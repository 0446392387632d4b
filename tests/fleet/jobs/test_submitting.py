"""`stallguard fleet submit` and `sweep`: what is put into the store, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallguard.cli.verbs import cli
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.fleet.jobs import submitting
from stallguard.fleet.store import orders
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.orders import Code, WorkerCard
from stallguard.fleet.store.signing import Signatures
from tests.cli.test_json import conforms
from tests.fleet.members import signs_for

NOW = dt.datetime(2026, 6, 10, 22, 5, 1, tzinfo=dt.UTC)


@pytest.fixture
def member(found, tmp_path, monkeypatch):
    """A member of a fleet, in a project with a script."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path / "project")
    return found()


@pytest.fixture
def store(member):
    return open_store(member.store)


def call(*words, code=0):
    """Run stallguard; return what is printed, or the lines of the error."""
    result = CliRunner().invoke(cli, words)
    if isinstance(result.exception, StallguardError):
        assert result.exception.code == code, result.exception.lines()
        return "\n".join(result.exception.lines())
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if "--json" in words else result.output


def submission(store, member, job):
    return orders.decode_submission(store.read(orders.Submission.place(job=job)), Signatures(member), job)


def card(store, host, **resources):
    made = WorkerCard(schema=1, host=host, at="", state="ready", resources={"slots": 1.0, **resources})
    store.replace(orders.WorkerCard.place(host=host), orders.encode(made, signs_for(host)))


# ---- submit ---------------------------------------------------------------------------------------------------------


def test_a_job_is_in_the_store_with_its_code_command_and_options(store, member, monkeypatch):
    monkeypatch.setenv("RATE", "0.1")
    words = ("--name", "a", "--needs", "metal,memory=32GB", "--needs", "cuda=2", "--priority", "-3", "--env", "RATE")
    call(
        "fleet",
        "submit",
        *words,
        "--env",
        "X=1=2",
        "--max-restarts",
        "2",
        "--set",
        "store.lease=30s",
        "--",
        "train.py",
        "--epochs",
        "9",
    )
    job = submission(store, member, "a")
    assert job.words == ("train.py", "--epochs", "9")
    assert job.options == ("--max-restarts", "2", "--set", "store.lease=30s")
    assert (job.needs, job.priority) == ({"metal": 1.0, "memory": 32.0, "cuda": 2.0}, -3)
    assert (job.environment, job.engine) == ({"RATE": "0.1", "X": "1=2"}, orders.DASK)
    assert store.names("code") == [job.code.digest]
    assert job.by.endswith(f"@{os.uname().nodename}")


def test_a_name_that_is_taken_is_refused_and_its_job_stays(store, member):
    call("fleet", "submit", "--name", "a", "train.py", "1")
    said = call("fleet", "submit", "--name", "a", "train.py", "2", code=CANNOT_RUN)
    assert "there is a job a already" in said
    assert submission(store, member, "a").words == ("train.py", "1")


def test_a_job_without_a_name_gets_that_of_its_script_and_the_time(store, member):
    call("fleet", "submit", "train.py")
    (name,) = store.names("jobs")
    assert orders.JOB_NAME.fullmatch(name)
    assert name.startswith("train-")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("train.py", "--out", "x.py"), "train"),
        (("python", "-m", "lab.train"), "lab"),
        (("-m", "lab.train", "run.sh"), "lab"),
        (("a b/ü train.py",), "train"),
        (("./prog",), "prog"),
        (("...",), "job"),
    ],
)
def test_names_are_plain(words, name):
    assert submitting.job_name(words, NOW) == f"{name}-20260610-220501"


def test_what_was_submitted_is_said_as_json_too(store, member):
    Path(".env").write_text("KEY=1")
    said = conforms(call("fleet", "submit", "--name", "a", "--json", "train.py"), submitting.Submitted)
    assert (said["left_out"], said["files"] > 0, said["content_bytes"] > 0) == ([".env"], True, True)
    assert (said["jobs"], said["present"], said["fleet"]) == (["a"], [], member.fleet)
    assert said["code"] == submission(store, member, "a").code.digest


def test_a_person_hears_what_is_sent_and_what_is_not(store, member):
    Path(".env").write_text("KEY=1")
    said = call("fleet", "submit", "--name", "a", "train.py")
    assert "not sent, because such files hold secrets: .env" in said
    assert said.index("are sent") < said.index("a: submitted")


@pytest.mark.costly
def test_a_large_project_is_sent_only_with_yes(store, member):
    with Path("weights").open("wb") as file:
        file.truncate(50_000_001)
    assert "--yes" in call("fleet", "submit", "--name", "a", "train.py", code=2)
    assert store.names("code") == []
    assert "a: submitted" in call("fleet", "submit", "--name", "a", "--yes", "train.py")


def test_a_person_hears_if_no_machine_can_take_the_job_yet(store, member):
    assert "no machine of the fleet has a worker" in call("fleet", "submit", "--name", "a", "train.py")
    card(store, "box", cuda=1.0)
    said = call("fleet", "submit", "--name", "b", "--needs", "metal", "train.py")
    assert "no machine can take it now, so it waits: box has 0 of 1 metal" in said
    assert "waits" not in call("fleet", "submit", "--name", "c", "--needs", "cuda", "train.py")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--name", "a b", "train.py"), "cannot be the name of a job"),
        (("--needs", "gpu", "train.py"), "no machine can offer 'gpu'"),
        (("--needs", "memory=much", "train.py"), "'memory=much' is no amount"),
        (("--needs", "cuda=-1", "train.py"), "'cuda=-1' is no amount"),
        (("--needs", "cuda=nan", "train.py"), "'cuda=nan' is no amount"),
        (("--needs", "memory", "train.py"), "'memory' is no amount"),
        (("--env", "NOWHERE_SET", "train.py"), "there is no variable 'NOWHERE_SET'"),
        (("--env", "=x", "train.py"), "there is no variable '=x'"),
        (("--job", "x", "train.py"), "store.job cannot be chosen"),
        (("--set", "store.url=file:///x", "train.py"), "store.url cannot be chosen"),
        (("--max-restarts", "many", "train.py"), "many"),
        (("missing.py",), "missing.py"),
        (("--again", "--name", "a"), "--again takes the name of a job"),
        (("--again", "--ray", "http://x", "--name", "a", "train.py"), "--again takes the name of a job"),
    ],
)
def test_what_cannot_become_a_job_is_refused_and_nothing_is_submitted(store, words, says):
    result = CliRunner().invoke(cli, ["fleet", "submit", *words])
    assert isinstance(result.exception, StallguardError), result.output
    assert result.exception.code in (USAGE, CANNOT_RUN)
    assert says in "\n".join(result.exception.lines())
    assert store.names("jobs") == []


def test_a_job_needs_a_command(store):
    assert "a job needs a COMMAND" in call("fleet", "submit", "--name", "a", code=USAGE)
    assert store.names("jobs") == []


@pytest.mark.parametrize("verb", [("fleet", "submit", "train.py"), ("fleet", "sweep", "sweep.toml")])
def test_a_machine_that_is_in_no_fleet_says_how_it_gets_into_one(home, tmp_path, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "sweep.toml").write_text('name = "a"\ncommand = ["train.py"]\n[parameters]\nx = [1]\n')
    assert "this machine is in no fleet" in call(*verb, code=USAGE)


def test_a_store_that_is_away_is_one_clear_error(member, tmp_path):
    (tmp_path / "store").rename(tmp_path / "away")
    said = call("fleet", "submit", "train.py", code=CANNOT_RUN)
    assert f"{member.store} cannot be" in said


def test_code_that_the_store_has_is_not_put_again(store, tmp_path):
    code = Code(digest="0" * 64, size=1)
    submitting.put_code(store, code, _file(tmp_path, b"first"))
    submitting.put_code(store, code, _file(tmp_path, b"second"))
    store.get(orders.code_key(code.digest), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"first"


def _file(folder, content):
    (folder / "archive").write_bytes(content)
    return folder / "archive"


def test_a_machine_that_left_or_whose_card_is_damaged_or_of_another_member_fits_nothing(store, member):
    card(store, "here", cuda=2.0)
    gone = WorkerCard(schema=1, host="gone", at="", state="gone", resources={"slots": 1.0, "cuda": 4.0})
    store.replace(orders.WorkerCard.place(host="gone"), orders.encode(gone, signs_for("gone")))
    store.replace(orders.WorkerCard.place(host="broken"), b"{")
    foreign = WorkerCard(schema=1, host="foreign", at="", state="ready", resources={"slots": 1.0, "cuda": 2.0})
    store.replace(orders.WorkerCard.place(host="foreign"), orders.encode(foreign, signs_for("here")))
    own = Signatures(member)
    assert submitting.fitting(store, own, {"cuda": 2.0})[0] == ["here"]
    fit, why = submitting.fitting(store, own, {"cuda": 3.0})
    assert (fit, why) == ([], "gone is gone; here has 2 of 3 cuda")


# ---- sweep ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sweep(tmp_path, store):
    file = tmp_path / "project" / "sweep.toml"
    file.write_text('name = "s"\ncommand = ["train.py"]\n[parameters]\nrate = [0.1, 0.01]\n')
    return file


def test_a_sweep_that_is_submitted_again_adds_what_is_missing(sweep, store, member):
    assert "2 jobs submitted" in call("fleet", "sweep", "sweep.toml")
    assert submission(store, member, "s-002").words == ("train.py", "--rate", "0.01")
    sweep.write_text(sweep.read_text().replace("0.01]", "0.01, 0.001]"))
    said = conforms(call("fleet", "sweep", "sweep.toml", "--json"), submitting.Submitted)
    assert (said["jobs"], said["present"]) == (["s-003"], ["s-001", "s-002"])
    assert len({submission(store, member, job).sweep for job in store.names("jobs")}) == 1


def test_a_sweep_can_be_looked_at_before(sweep, store):
    said = call("fleet", "sweep", "--dry-run", "sweep.toml")
    assert [line.split() for line in said.splitlines()] == [
        ["s-001", "train.py", "--rate", "0.1"], ["s-002", "train.py", "--rate", "0.01"],
    ]  # fmt: skip
    assert store.names("jobs") == []


def test_a_sweep_file_that_cannot_be_read_says_why(sweep):
    assert "cannot read nowhere.toml" in call("fleet", "sweep", "nowhere.toml", code=USAGE)
    sweep.write_bytes(b"\xff\xfe")
    assert "it is not UTF-8" in call("fleet", "sweep", "sweep.toml", code=USAGE)


# ---- Ray ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ray(tmp_path, monkeypatch):
    """A function that puts a program `ray` on the path; its words are written down."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(ends="exit 0"):
        program = folder / "ray"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/words\n{ends}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return lambda: (folder / "words").read_text().splitlines()

    return make


def test_ray_is_asked_for_what_the_job_needs():
    words = submitting.ray_command("ray", "http://h:8265", "a", "1", {"cuda": 2.0, "memory": 32.0, "metal": 1.0})
    assert words[: words.index("--")] == [
        "ray", "job", "submit", "--address", "http://h:8265", "--no-wait", "--submission-id", "a-1",
        "--entrypoint-num-cpus", "1", "--entrypoint-num-gpus", "2", "--entrypoint-memory", "32000000000",
        "--entrypoint-resources", json.dumps({"metal": 1.0}),
    ]  # fmt: skip
    assert words[-4:] == ["stallguard", "fleet", "job", "a"]


def test_a_job_for_ray_is_in_the_store_and_the_scheduler_leaves_it_alone(store, member, ray):
    words = ray()
    assert "handed to the Ray cluster at http://h:8265" in call(
        "fleet", "submit", "--ray", "http://h:8265", "--name", "a", "train.py"
    )
    assert submission(store, member, "a").engine == orders.RAY
    first = words()
    assert first[-4:] == ["stallguard", "fleet", "job", "a"]
    call("fleet", "submit", "--ray", "http://h:8265", "--name", "a", "--again")
    assert words() != first  # Ray takes each submission id once
    assert words()[-4:] == first[-4:]


def test_a_cluster_that_refuses_is_an_error_with_its_last_words(store, ray):
    ray("echo trying; echo 'Failed to connect to Ray' >&2; exit 1")
    said = call("fleet", "submit", "--ray", "http://h:8265", "--name", "a", "train.py", code=CANNOT_RUN)
    assert "the Ray cluster at http://h:8265 did not take the job" in said
    assert "Failed to connect to Ray" in said
    assert "--again" in said
    assert store.names("jobs") == ["a"]  # so it can be handed over again


def test_a_cluster_that_does_not_answer_is_given_up(store, ray, monkeypatch):
    ray("exec sleep 60")
    monkeypatch.setattr(submitting, "LIMIT", 0.5)
    said = call("fleet", "submit", "--ray", "http://h:8265", "--name", "a", "train.py", code=CANNOT_RUN)
    assert "it did not answer within" in said


def test_without_the_program_it_says_what_to_install(store, ray):
    said = call("fleet", "submit", "--ray", "http://h:8265", "--name", "a", "train.py", code=CANNOT_RUN)
    assert "there is no program ray" in said
    assert "stallguard-train[ray]" in said


def test_a_job_that_is_not_there_cannot_be_handed_over_again(store):
    assert "there is no job b" in call(
        "fleet", "submit", "--ray", "http://h", "--name", "b", "--again", code=NO_SUCH_RUN
    )

"""The services of a fleet: what launchd and systemd are given, and that nights and services stay apart."""

from __future__ import annotations

import plistlib
import sys
from pathlib import Path

import pytest

from stallguard.agent import launchd, systemd
from stallguard.agent.job import SERVICES, checked_name, is_ours, read_back
from stallguard.agent.launchd import Launchd
from stallguard.agent.service_manager import LAUNCHD, SYSTEMD, places
from stallguard.config import Config
from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, USAGE, StallguardError
from stallguard.fleet.machines import services
from tests.agent.conftest import fake  # noqa: F401 - a fixture
from tests.agent.launchd_schema import mistakes

ENV = {
    "PATH": "/usr/bin", "STALLGUARD_FLEET": "lab.toml", "AWS_PROFILE": "lab", "AWS_SECRET_ACCESS_KEY": "s3cret",
}  # fmt: skip
WORDS = ("--name", "studio", "--slots", "1", "--between", "22:00", "07:00", "--mains-only")


@pytest.fixture
def worker(home):
    (home / "train").mkdir()
    env = ENV | {"HOME": str(home)}
    return services.service("worker", WORDS, Config(), env, home / "train", places(SYSTEMD, {"HOME": str(home)}))


def test_launchd_starts_a_worker_at_login_and_after_each_end(worker):
    keys = plistlib.loads(launchd.render(worker))
    assert mistakes(keys) == []
    assert (keys["KeepAlive"], keys["RunAtLoad"], keys["Label"]) == (True, True, "com.stallguard.fleet-worker")
    assert keys["ThrottleInterval"] == 30
    assert keys["ProgramArguments"] == [sys.executable, "-P", "-m", "stallguard", "fleet", "worker", *WORDS]
    assert keys["StandardErrorPath"].endswith("fleet-worker.log")
    assert "StartCalendarInterval" not in keys


def test_systemd_starts_a_worker_again_after_each_end_without_a_limit(worker):
    lines = systemd.service_text(worker).splitlines()
    assert {"Restart=always", "RestartSec=30", "StartLimitIntervalSec=0", "WantedBy=default.target"} <= set(lines)
    assert not [line for line in lines if line.startswith("StartLimitBurst")]
    assert "KillMode=process" in lines, "a run goes on if its worker is killed, and the next worker finds it"
    assert systemd.timer_text(worker) is None
    assert systemd.program(systemd.service_text(worker)) == worker.program


def test_the_definition_has_the_place_of_the_fleet_file_and_of_the_bucket_and_no_secret(worker):
    assert worker.env["STALLGUARD_FLEET"] == str(Path.cwd() / "lab.toml")
    assert worker.env["AWS_PROFILE"] == "lab"
    assert "s3cret" not in systemd.service_text(worker)
    assert "~/.aws/credentials" in services.secrets_left_out("s3://lab", ENV)
    assert services.secrets_left_out("file:///share", ENV) == ""


def test_a_service_is_ours_and_no_job_of_a_night(worker):
    assert is_ours(worker.program)
    assert read_back(worker.program) is None
    assert not is_ours(("/usr/bin/python3", "-m", "http.server"))
    for name in SERVICES:
        with pytest.raises(StallguardError, match="cannot be named"):
            checked_name(name)


@pytest.fixture
def mac(home, fake, monkeypatch):  # noqa: F811 - the fixture
    """launchd of user 501; the verbs of the fleet use it."""
    monkeypatch.chdir(home)
    own = Launchd(places(LAUNCHD, {"HOME": str(home)}), 501, fake.ask, sleep=lambda _: None)
    monkeypatch.setattr(services, "manager", lambda _system, _env: own)
    return fake


def test_a_worker_is_installed_and_removed(mac, found, fleet):
    pytest.importorskip("distributed")
    found(name="studio")
    said = fleet("worker", "--install", "--between", "22:00", "7:00", "--memory", "48GB", "--name", "studio")
    assert "fleet-worker.log" in said
    job = mac.state["jobs"]["com.stallguard.fleet-worker"]
    assert job["pid"], "it runs at once"
    assert job["keys"]["ProgramArguments"][4:] == [
        "fleet", "worker", "--name", "studio", "--slots", "1", "--between", "22:00", "7:00", "--memory",
        "48000000000",
    ]  # fmt: skip

    fleet("worker", "--install", "--name", "studio")  # replaces it
    assert "--between" not in mac.state["jobs"]["com.stallguard.fleet-worker"]["keys"]["ProgramArguments"]
    fleet("worker", "--uninstall")
    assert mac.state["jobs"] == {}
    assert "not installed here" in fleet("worker", "--uninstall", code=NO_SUCH_RUN)


def test_a_scheduler_is_installed_with_the_port_of_the_fleet_file(mac, found, fleet):
    pytest.importorskip("distributed")
    found("studio:9999")
    fleet("scheduler", "--install")
    words = mac.state["jobs"]["com.stallguard.fleet-scheduler"]["keys"]["ProgramArguments"]
    assert words[4:] == ["fleet", "scheduler", "--listen", "0.0.0.0:9999"]


def test_nothing_is_installed_on_a_machine_that_is_in_no_fleet(mac, home, fleet):
    assert "in no fleet" in fleet("worker", "--install", code=USAGE)
    assert mac.state["jobs"] == {}


def test_nothing_is_installed_if_the_store_is_another_fleets(mac, found, fleet):
    pytest.importorskip("distributed")
    found()
    other = found(store="other")
    store = Path(other.store.removeprefix("file://"))
    (store / "fleet" / "content").unlink()
    assert "not the store of this fleet" in fleet("worker", "--install", code=CANNOT_RUN)
    assert mac.state["jobs"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--between", "22", "7"), "not two times of day"),
        (("--memory", "much"), "not a size"),
        (("--name", "a/b"), "try a-b"),
    ],
)
def test_options_that_are_none_are_refused_before_anything_is_done(mac, found, fleet, words, said):
    found()
    assert said in fleet("worker", "--install", *words, code=USAGE)


def test_certificates_that_have_expired_are_said_at_once(mac, found, fleet):
    import datetime as dt

    found(now=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    assert "has expired" in fleet("worker", code=CANNOT_RUN)
    assert "has expired" in fleet("scheduler", "--install", code=CANNOT_RUN)

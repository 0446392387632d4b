"""The whole way with a real systemd of the user's: install, start, kill -9, come back, finish, stop, uninstall."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SYSTEMD = "/lib/systemd/systemd"
TRAIN = """
import os, sys, time
import stallguard
for number in range(int(sys.argv[1])):
    print("step", number, flush=True)
    stallguard.beat()
    time.sleep(0.1)
    if os.path.exists("enough"):
        break
"""
# systemd asks whether the machine was booted with it; in a mount namespace of our own it may believe so.
BELIEVE = "mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && mkdir -p /run/systemd/system && exec "

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not Path(SYSTEMD).exists(), reason="there is no systemd on this machine"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="a systemd of our own needs root and unshare"
    ),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A systemd --user of our own, with a home; the environment to reach it."""
    place = tmp_path_factory.mktemp("session")
    runtime = place / "run"
    runtime.mkdir(mode=0o700)
    env = {"PATH": os.environ["PATH"], "HOME": str(place), "XDG_RUNTIME_DIR": str(runtime),
           "PYTHONPATH": str(ROOT), "TMPDIR": os.environ["TMPDIR"]}  # fmt: skip
    command = ["unshare", "--mount", "sh", "-c", f"{BELIEVE}{SYSTEMD} --user"]
    systemd = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if not _comes_up(env):
            pytest.skip("a systemd of our own does not start here (no cgroup to manage?)")
        yield env
    finally:
        systemd.terminate()
        systemd.wait(30)


def _comes_up(env) -> bool:
    for _ in range(50):
        words = ["systemctl", "--user", "show-environment"]
        if subprocess.run(words, env=env, capture_output=True, check=False).returncode == 0:
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def stallguard(session):
    """A function that runs a verb of `stallguard agent` in a project."""
    project = Path(session["HOME"]) / "project"
    project.mkdir(exist_ok=True)
    (project / "train.py").write_text(TRAIN)
    (project / "enough").unlink(missing_ok=True)

    def run(*words: str, code: int | None = 0) -> str:
        command = [sys.executable, "-P", "-m", "stallguard", "agent", *words]
        done = subprocess.run(
            command, env=session, cwd=project, capture_output=True, text=True, timeout=60, check=False
        )
        assert code is None or done.returncode == code, done.stderr
        return done.stdout + done.stderr

    yield run
    run("uninstall", "--name", "night", code=None)  # 3 if the test has removed it


def until(what, seconds: float = 40.0):
    end = time.monotonic() + seconds
    while not (answer := what()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.1)
    return answer


INSTALL = ("install", "--name", "night", "--env", "PYTHONPATH", "--set", "agent.throttle=1s", "--set",
           "notify.desktop=off", "--python", sys.executable)  # fmt: skip


def job(stallguard) -> dict:
    return json.loads(stallguard("status", "--name", "night", "--json"))["job"]


def output(session, stallguard) -> str:
    """Return what the job's own run has printed: the newest run may still be that of an earlier test."""
    log = Path(session["HOME"]) / ".local/share/stallguard/runs" / job(stallguard)["run"] / "output.log"
    return log.read_text() if log.exists() else ""


def test_a_killed_stallguard_comes_back_and_the_training_finishes(session, stallguard):
    stallguard(*INSTALL, "--at", "23:00", "--now", "--", "train.py", "10000")
    first = until(lambda: job(stallguard)["pid"])
    until(lambda: "step 5" in output(session, stallguard))
    os.kill(first, signal.SIGKILL)
    until(lambda: (now := job(stallguard))["pid"] and now["pid"] != first and now["run_state"] == "running")

    (Path(session["HOME"]) / "project" / "enough").touch()
    end = until(lambda: (now := job(stallguard)) and not now["running"] and now)
    assert (end["run_state"], end["ending"]) == ("finished", "ended normally")
    lines = output(session, stallguard).splitlines()
    assert lines == [f"step {number}" for number in range(len(lines))]
    assert "23:00" in end["schedule"]


def test_each_verb_does_what_it_says(session, stallguard):
    stallguard(*INSTALL, "--at", "23:00", "--", "train.py", "500")
    assert not job(stallguard)["running"]
    stallguard("start")
    first = until(lambda: job(stallguard)["pid"])
    stallguard("restart")
    second = until(lambda: job(stallguard)["pid"])
    assert second != first
    stallguard("stop")
    assert not job(stallguard)["running"]
    stallguard("uninstall")
    stallguard("status", code=3)
    assert "no jobs" in stallguard("list")
    stallguard("start", code=3)


def test_installing_again_replaces_times_and_ends_what_runs(session, stallguard):
    stallguard(*INSTALL, "--now", "--", "train.py", "500")
    until(lambda: job(stallguard)["pid"])
    stallguard(*INSTALL, "--at", "03:30", "--", "train.py", "500")

    now = job(stallguard)
    assert (now["running"], now["schedule"]) == (False, "daily at 03:30")


def test_systemd_will_start_the_job_at_its_time(session, stallguard):
    soon = time.strftime("%H:%M", time.localtime(time.time() + 7200))
    stallguard(*INSTALL, "--at", soon, "--", "train.py", "3")
    words = ["systemctl", "--user", "show", "-p", "NextElapseUSecRealtime,Unit", "stallguard-night.timer"]
    said = subprocess.run(words, env=session, capture_output=True, text=True, check=True).stdout
    assert f" {soon}:00" in said
    assert "Unit=stallguard-night.service" in said


LEARN = """
import sys, time
import stallguard
done = [0]

def save(path):
    with open(path, "w") as file:
        file.write(str(done[0]))

def load(path):
    with open(path) as file:
        done[0] = int(file.read())

stallguard.checkpoint(save, load)
while done[0] < int(sys.argv[1]):
    print("step", done[0], flush=True)
    stallguard.beat()
    done[0] += 1
    time.sleep(0.1)
print("through", flush=True)
"""
STEPS = 50  # five seconds
ON_TIME = ("--max-time", "3s")


@pytest.fixture
def nightly(session, stallguard):
    """A function that installs the job of a night that ends on time, or starts it again, and returns how it stands."""
    (Path(session["HOME"]) / "project" / "learn.py").write_text(LEARN)

    def night(*options: str, install: bool = True) -> dict:
        before = "" if install else job(stallguard)["run"]
        if install:
            stallguard(*INSTALL, "--now", *ON_TIME, *options, "--", "learn.py", str(STEPS))
        else:
            stallguard("start", "--name", "night")
        return until(lambda: (now := job(stallguard))["run"] not in ("", before) and not now["running"] and now)

    return night


def first_step(session, stallguard) -> int:
    return int(output(session, stallguard).split()[1])


def test_a_night_that_ends_on_time_goes_on_the_next_and_a_finished_one_begins_anew(session, stallguard, nightly):
    first = nightly()
    assert first["run_state"] == "stopped"
    assert first_step(session, stallguard) == 0
    assert "through" not in output(session, stallguard)
    reached = len(output(session, stallguard).splitlines())

    second = nightly(install=False)
    assert 0 < first_step(session, stallguard) <= reached
    for _ in range(3):  # a machine that is slow to start needs another night
        if second["run_state"] == "stopped":
            second = nightly(install=False)
    assert second["run_state"] == "finished"
    assert output(session, stallguard).splitlines()[-2:] == [f"step {STEPS - 1}", "through"]

    third = nightly(install=False)
    assert third["run_state"] == "stopped"
    assert first_step(session, stallguard) == 0


def test_resume_no_begins_anew_although_there_is_a_checkpoint(session, stallguard, nightly):
    nightly()
    again = nightly("--resume", "no")
    assert again["run_state"] == "stopped"
    assert first_step(session, stallguard) == 0


def test_a_stop_ends_within_the_time_that_the_unit_gives_and_is_gone_on_from(session, stallguard):
    learn = Path(session["HOME"]) / "project" / "learn.py"
    learn.write_text("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + LEARN)
    stallguard(*INSTALL, "--now", "--grace", "3s", "--set", "checkpoint.every=1s", "--", "learn.py", "90")
    until(lambda: "step 15" in output(session, stallguard))
    began = time.monotonic()
    stallguard("stop")
    took = time.monotonic() - began
    assert 3 < took < 20, "SIGTERM, its grace, SIGKILL, and nothing that waits without need"
    assert not job(stallguard)["running"]

    stallguard("start")
    until(lambda: (now := job(stallguard))["run_state"] == "finished" and now)
    assert first_step(session, stallguard) > 5


def test_a_service_of_the_fleet_is_started_again_after_each_end_until_it_is_removed(session, tmp_path):
    pytest.importorskip("distributed")
    (tmp_path / "store").mkdir()
    env = session | {"STALLGUARD_AGENT__THROTTLE": "1s", "STALLGUARD_FLEET": str(tmp_path / "fleet.toml")}

    def fleet(*words):
        command = [sys.executable, "-P", "-m", "stallguard", "fleet", *words]
        return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    def systemctl(*words):
        command = ["systemctl", "--user", *words, "stallguard-fleet-worker.service"]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout.strip()

    made = fleet("init", "--name", "box", "--store", f"file://{tmp_path}/store", "--scheduler", "127.0.0.1:1")
    assert made.returncode == 0, made.stderr
    try:
        installed = fleet("worker", "--install", "--name", "box")
        assert installed.returncode == 0, installed.stderr
        assert systemctl("is-enabled") == "enabled"

        def restarts():
            return int(systemctl("show", "-p", "NRestarts", "--value"))

        for _ in range(2):
            before = restarts()
            systemctl("kill", "--signal=KILL")  # whether it was up or already between two starts
            until(lambda before=before: restarts() > before)
    finally:
        removed = fleet("worker", "--uninstall")
    assert removed.returncode == 0, removed.stderr
    assert systemctl("show", "-p", "LoadState", "--value") == "not-found"
    assert fleet("worker", "--uninstall").returncode == 3

"""A whole fleet on this machine: a scheduler, and workers with a home each, which stand for machines.

Nothing here depends on how fast they are: a test waits for what must come, and looks at order and results.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN
from stallguard.fleet.store import membership, orders, records
from stallguard.fleet.store.folder_store import FolderStore
from tests.fleet.members import invited

pytest.importorskip("distributed")
pytest.importorskip("cryptography")
pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "fleet" / "scripts"
PATIENCE = 90.0
LEASE, SHORT = 120.0, 6.0  # s; a short one can run out on a busy machine: for jobs whose machine is lost
QUICK = ("--set", "checkpoint.cost=1", "--checkpoint-every", "0.3s")
PAUSE = "0.05"
LOCK = """version = 1
requires-python = ">=3.10"

[[package]]
name = "impossible"
version = "1.0"
source = { virtual = "." }
dependencies = [{ name = "nowhere-to-be-found" }]

[[package]]
name = "nowhere-to-be-found"
version = "1.0"
source = { registry = "http://127.0.0.1:9/simple" }
wheels = [{ url = "http://127.0.0.1:9/nowhere_to_be_found-1.0-py3-none-any.whl", hash = "sha256:00" }]
"""


class Lab:
    """A fleet in a directory: `store`, `project`, and a home for each machine."""

    def __init__(self, place):
        self.place, self.project, self.folder = place, place / "project", place / "store"
        self.folder.mkdir()
        self.store = FolderStore(self.folder)
        self.started = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.project.mkdir()
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, self.project)
        (self.project / "fail.py").write_text("raise ValueError('the rate is negative')\n")
        for words in (
            ("init", "-q"),
            ("add", "."),
            ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"),
        ):
            subprocess.run(["git", *words], cwd=self.project, check=True, env=self.env("user"))
        self.call("fleet", "init", "--store", f"file://{self.folder}", "--scheduler", self.address)

    def env(self, home):
        (self.place / home).mkdir(exist_ok=True)
        return {
            **os.environ, "HOME": str(self.place / home), "STALLGUARD_HOME": str(self.place / home / "state"),
            "STALLGUARD_FLEET": str(self.place / "fleet.toml"), "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def call(self, *words, cwd=None):
        """Run a command of the person who submits, to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "stallguard", *words], cwd=cwd or self.project, env=self.env("user"), check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def submit(self, job, *words, cwd=None, lease=LEASE):
        quick = ("--set", f"store.lease={lease:g}s", *QUICK)
        return self.call("fleet", "submit", "--name", job, *quick, "--", *map(str, words), cwd=cwd)

    def start(self, home, *words, **more):
        """Start a command of a machine."""
        out = (self.place / f"{home}-{len(self.started)}.txt").open("a+")  # it is read meanwhile
        process = subprocess.Popen(
            [sys.executable, "-m", "stallguard", "fleet", *words], env={**self.env(home), **more}, stdout=out,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.place / home, start_new_session=True,
        )  # fmt: skip
        process.out = out
        self.started.append(process)
        return process

    def scheduler(self):
        return self.start("hub", "scheduler", "--listen", self.address)

    def worker(self, name, *options, **more):
        file = invited(self.place / "fleet.toml", name)
        return self.start(name, "worker", "--name", name, *options, STALLGUARD_FLEET=str(file), **more)

    @staticmethod
    def said(process):
        process.out.seek(0)
        return process.out.read()

    def of_run(self, machine, job):
        """What a run of a job printed on a machine."""
        log = self.place / machine / "state" / "fleet" / "logs" / f"{job}.log"
        return log.read_text() if log.exists() else ""

    def log(self, job):
        names = sorted(self.store.names(f"jobs/{job}/log"))
        return [records.decode(self.store.read(f"jobs/{job}/log/{name}")) for name in names]

    def holders(self, job):
        return [entry.holder.host for entry in self.log(job) if isinstance(entry, records.Claim)]

    def outcomes(self, job):
        return [(entry.number, entry.code) for entry in self.log(job) if isinstance(entry, records.HolderEnd)]

    def has_published(self, job, number=1):
        return any(isinstance(one, records.Generation) and one.number == number for one in self.log(job))

    def is_done(self, job):
        return any(code == 0 for _, code in self.outcomes(job))

    def card(self, host):
        data = self.store.read(orders.WorkerCard.place(host=host))
        return orders.decode_card(data, host, None) if data else None

    def cordon(self, host):
        data = self.store.read(orders.Cordon.place(host=host))
        return orders.decode_cordon(data, host, None) if data else None

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError(self.told())

    def told(self):
        """Return all that a failed test needs to be understood."""
        told = [f"{' '.join(one.args[3:])}\n{self.said(one)}" for one in self.started]
        told += [path.read_text() for path in self.place.glob("*/state/fleet/logs/*.log")]
        told += [f"{path.name}: {self.log(path.name)}" for path in self.folder.glob("jobs/*")]
        told += [f"alive: {process}" for process in self.processes()]
        return "\n---\n".join(told)

    def until_said(self, process, text):
        self.until(lambda: text in self.said(process))

    def processes(self, home=""):
        """Return what runs with the environment of a machine, or of any."""
        # Never another test's, nor a user's: joining "/" to a path would give the root, under which all homes are.
        mark, found = f"{self.place / home}{os.sep}", []
        assert mark.startswith(f"{self.place}{os.sep}")
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):  # it is gone, or another user's
                if process.environ().get("STALLGUARD_HOME", "").startswith(mark):
                    found.append(process)
        return found

    def kill_machine(self, home):
        """End all that runs on a machine, as a loss of power does."""
        for process in self.processes(home):
            with contextlib.suppress(psutil.Error):
                process.kill()

    def close(self):
        self.kill_machine("")
        for process in self.started:
            process.wait()
            process.out.close()
        for sockets in self.place.glob("*/state/runs/*/attempt.json"):  # of those that were killed
            shutil.rmtree(json.loads(sockets.read_text())["place"], ignore_errors=True)


@pytest.fixture
def lab(tmp_path):
    made = Lab(tmp_path)
    yield made
    made.close()


def result(steps):
    digest = "0"
    for step in range(steps):
        digest = hashlib.sha256(f"{step} {digest}".encode()).hexdigest()
    return f"digest {digest}"


def began_at(text):
    """Return the step at which the last training of a text began."""
    return int(re.findall(r"begins at (\d+)", text)[-1])


def test_jobs_that_are_submitted_before_there_is_a_machine_end_as_they_must(lab):
    impossible = lab.project / "impossible"
    impossible.mkdir()
    (impossible / "train.py").touch()
    (impossible / "uv.lock").write_text(LOCK)
    (impossible / "pyproject.toml").write_text(
        '[project]\nname = "impossible"\nversion = "1.0"\ndependencies = ["nowhere-to-be-found"]\n'
    )
    assert "no machine of the fleet has a worker" in lab.submit("count", "count.py", 20, PAUSE)
    lab.submit("fails", "fail.py")
    lab.submit("impossible", "train.py", cwd=impossible)
    for code in (75, 125):  # of the script, as stallguard's own
        lab.submit(f"ends-{code}", "ends.py", 3, code, lab.place / f"begun-{code}")
    scheduler = lab.scheduler()
    lab.until_said(scheduler, "job count waits: no machine is connected")
    first = lab.worker("m1", "--slots", "3")
    lab.until(lambda: lab.is_done("count") and lab.outcomes("fails"))
    for code in (75, 125):
        lab.until_said(scheduler, f"job ends-{code}: it failed")
        assert (lab.place / f"begun-{code}").read_text() == "begun\n"  # once
        assert lab.store.names(orders.refusals_folder(f"ends-{code}")) == []
    assert result(20) in lab.of_run("m1", "count")
    lab.until_said(scheduler, "job fails: it failed")
    assert "the rate is negative" in lab.of_run("m1", "fails")
    lab.until_said(scheduler, "job impossible waits: no machine can take it; m1: uv sync --frozen:")
    second = lab.worker("m2")
    lab.until(lambda: re.search(r"impossible waits: .*m1: uv.*m2: uv", lab.said(scheduler)))
    assert "impossible cannot begin here: uv sync --frozen:" in lab.said(second)
    assert "nowhere" in lab.said(second)
    assert (lab.holders("fails"), lab.holders("impossible")) == (["m1"], [])
    assert "fails begins" not in lab.said(second)
    lab.until(lambda: lab.card("m1").state == "ready")
    assert lab.said(first).count("fails begins") == 1


def test_a_job_goes_on_while_the_scheduler_and_the_worker_are_killed_and_started_again(lab):
    scheduler, worker = lab.scheduler(), lab.worker("m1")
    lab.submit("count", "count.py", 400, PAUSE)
    lab.until(lambda: lab.has_published("count"))
    for process in (scheduler, worker):
        process.kill()
        process.wait()
    scheduler = lab.scheduler()
    lab.until_said(scheduler, "job count waits: m1 trains it")
    again = lab.worker("m1")
    lab.until_said(again, "count is trained here already, by run ")
    lab.submit("next", "count.py", 5, PAUSE)  # its slot is taken
    lab.until(lambda: lab.is_done("count") and lab.is_done("next"))
    assert result(400) in lab.of_run("m1", "count")
    assert (lab.holders("count"), lab.outcomes("count")) == (["m1"], [(1, 0)])
    assert lab.log("next")[0].at >= lab.log("count")[-1].at
    lab.until_said(scheduler, "job count: it is finished")


def test_a_job_of_a_machine_that_is_lost_goes_on_elsewhere_and_the_machine_can_come_back(lab):
    scheduler = lab.scheduler()
    lab.worker("m1")
    lab.submit("count", "count.py", 300, PAUSE, lease=SHORT)
    lab.until(lambda: lab.has_published("count"))
    lab.worker("m2")
    lab.until(lambda: lab.card("m2") and lab.card("m2").state == "ready")
    lab.kill_machine("m1")
    lab.until(lambda: lab.is_done("count"))
    assert lab.holders("count") == ["m1", "m2"]
    assert lab.outcomes("count") == [(2, 0)]
    assert 0 < began_at(lab.of_run("m2", "count")) < 300
    assert result(300) in lab.of_run("m2", "count")
    assert re.search(r"machine m1 takes no more jobs: silent for 6\S* s, in job count", lab.said(scheduler))
    cordon = lab.cordon("m1")
    assert (cordon.number, cordon.lifts_itself, cordon.is_lifted) == (1, True, False)
    back = lab.worker("m1")
    lab.until_said(back, "m1 is there again; it was cordoned: silent for 6")
    lab.until(lambda: lab.card("m1").state == "ready")
    assert lab.cordon("m1").is_lifted


@pytest.mark.parametrize("is_of_an_earlier_worker", [False, True])
def test_a_run_whose_stallguard_is_killed_is_ended_and_begun_again_on_the_only_machine(lab, is_of_an_earlier_worker):
    scheduler, worker = lab.scheduler(), lab.worker("m1")
    lab.submit("count", "count.py", 400, PAUSE)
    lab.until(lambda: lab.has_published("count"))
    if is_of_an_earlier_worker:
        worker.kill()
        worker.wait()
        worker = lab.worker("m1")
        lab.until_said(worker, "count is trained here already, by run ")
    claim = lab.log("count")[0]
    os.kill(claim.holder.pid, signal.SIGKILL)
    lab.until(lambda: lab.is_done("count"))
    assert lab.holders("count") == ["m1", "m1"], lab.told()
    assert lab.outcomes("count") == [(1, 125 if is_of_an_earlier_worker else 137), (2, 0)]
    assert result(400) in lab.of_run("m1", "count")
    assert began_at(lab.of_run("m1", "count")) > 0
    assert "the training of run" in lab.said(worker)
    assert lab.cordon("m1") is None, lab.said(scheduler)


def test_a_worker_that_is_ended_ends_its_run_with_a_checkpoint_and_another_machine_goes_on(lab):
    lab.scheduler()
    first = lab.worker("m1")
    lab.submit("count", "count.py", 300, PAUSE)
    lab.until(lambda: lab.has_published("count"))
    first.terminate()
    assert first.wait(PATIENCE) == 0, lab.said(first)
    assert "m1 leaves the fleet; ending count" in lab.said(first)
    assert (lab.outcomes("count"), lab.card("m1").state) == ([(1, 143)], "gone")
    second = lab.worker("m2")
    lab.until(lambda: lab.is_done("count"))
    assert result(300) in lab.of_run("m2", "count"), lab.said(second)
    assert began_at(lab.of_run("m2", "count")) > 0
    assert lab.holders("count") == ["m1", "m2"]


def test_a_cordoned_machine_ends_what_it_trains_and_takes_nothing_more(lab):
    lab.scheduler()
    worker = lab.worker("m1")
    lab.submit("count", "count.py", 100, PAUSE)
    lab.until(lambda: lab.has_published("count"))
    lab.call("fleet", "cordon", "m1", "--why", "its fan is loud")
    lab.until_said(worker, "m1 takes no jobs: cordoned: its fan is loud")
    lab.submit("next", "count.py", 5, PAUSE)
    lab.until(lambda: lab.is_done("count"))
    assert (lab.holders("count"), lab.outcomes("count"), lab.log("next")) == (["m1"], [(1, 0)], [])
    lab.call("fleet", "uncordon", "m1")
    lab.until(lambda: lab.is_done("next"))
    assert lab.outcomes("count") == [(1, 0)]


def test_a_run_whose_lease_its_machine_renews_ends_as_soon_as_its_job_is_stopped(lab):
    lab.scheduler()
    lab.worker("m1")
    lab.submit("count", "count.py", 4000, PAUSE)
    lab.until(lambda: lab.has_published("count") and lab.store.read("beats/count@1@m1"))
    assert lab.store.read("beats/count@1") is None
    lab.call("stop", "count")
    lab.until(lambda: lab.outcomes("count") == [(1, 75)])
    assert lab.log("count")[-1].final
    lab.until(lambda: lab.store.names("beats") == [])


def test_who_reads_a_run_of_another_machine_reads_what_it_wrote_just_now(lab):
    """It publishes nothing by itself meanwhile: it makes no checkpoint, and its state stays."""
    lab.scheduler()
    lab.worker("m1")
    lab.submit("speak", "speak.py")
    lab.until(lambda: lab.card("m1") and "speak@1" in lab.card("m1").statuses)
    lab.until(lambda: lab.store.read("jobs/speak/runs/1/index"))

    def read():
        return max(int(line) for line in lab.call("logs", "--output", "speak").splitlines() if line.isdecimal())

    first = read()
    for least in (10, 20):  # without a reader the next lines would come after half an hour
        lab.until(lambda least=first + least: read() > least)
    told = lab.call("status", "speak", "--json").splitlines()[0]
    assert json.loads(told)["job"]["status"]["state"] == "starting"  # no batch is counted
    lab.call("stop", "speak")
    lab.until(lambda: lab.outcomes("speak"))


def test_outside_its_hours_a_machine_takes_nothing_and_one_job_can_be_trained_by_hand(lab):
    scheduler = lab.scheduler()
    later = [f"{dt.datetime.now() + dt.timedelta(hours=hours):%H:%M}" for hours in (6, 7)]  # noqa: DTZ005 - its clock
    worker = lab.worker("m1", "--between", *later)
    lab.until_said(worker, "m1 takes no jobs:")
    lab.submit("count", "count.py", 10, PAUSE)
    lab.until_said(scheduler, "job count waits: no machine is connected")
    assert lab.card("m1").state == "closed"
    by_hand = lab.start(
        "m2", "job", "count", STALLGUARD_MACHINE="m2", STALLGUARD_FLEET=str(invited(lab.place / "fleet.toml", "m2"))
    )
    assert by_hand.wait(PATIENCE) == 0, lab.said(by_hand)
    assert lab.holders("count") == ["m2"]
    lab.until_said(scheduler, "job count: it is finished")
    missing = lab.start("m2", "job", "nothing")
    assert missing.wait(PATIENCE) == 3
    assert "there is no job nothing" in lab.said(missing)


def test_a_worker_with_certificates_of_another_fleet_says_what_is_wrong_and_takes_nothing(lab, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    other = {**lab.env("user"), "STALLGUARD_FLEET": str(tmp_path / "other.toml")}
    words = ["fleet", "init", "--store", f"file://{tmp_path / 'elsewhere'}", "--scheduler", lab.address]
    subprocess.run([sys.executable, "-m", "stallguard", *words], env=other, check=True, capture_output=True)
    mine, theirs = (
        membership.required({"STALLGUARD_FLEET": str(tmp_path / name)}) for name in ("fleet.toml", "other.toml")
    )
    mixed = {name: getattr(theirs, name) for name in ("ca", "certificate", "key", "revoked")}
    membership.write(tmp_path / "mixed.toml", replace(mine, **mixed), replace=True)
    scheduler = lab.scheduler()
    lab.until_said(scheduler, "listens at")
    stranger = lab.start("m1", "worker", STALLGUARD_FLEET=str(tmp_path / "mixed.toml"))
    assert stranger.wait(PATIENCE) == CANNOT_RUN, lab.said(stranger)
    assert "has another authority than the fleet" in lab.said(stranger)
    lab.submit("count", "count.py", 5, PAUSE)
    lab.until_said(scheduler, "job count waits: no machine is connected")


def test_a_member_that_is_revoked_is_turned_away_and_what_it_trained_ends_elsewhere(lab):
    scheduler, lost = lab.scheduler(), lab.worker("m1")
    lab.submit("count", "count.py", 400, PAUSE, lease=SHORT)
    theirs = {**lab.env("m1"), "STALLGUARD_FLEET": str(invited(lab.place / "fleet.toml", "m1"))}
    words = ["fleet", "submit", "--name", "theirs", "--needs", "memory=999TB", "count.py", "5", PAUSE]
    subprocess.run([sys.executable, "-m", "stallguard", *words], env=theirs, cwd=lab.project, check=True)
    lab.until_said(scheduler, "job theirs waits: no connected machine has what it needs")
    lab.until(lambda: lab.has_published("count"))
    lab.worker("m2")
    lab.until(lambda: lab.card("m2") and lab.card("m2").state == "ready")
    lab.call("fleet", "revoke", "m1")
    lab.until_said(scheduler, "m1 is revoked: its connections are ended")
    assert lost.wait(PATIENCE) == CANNOT_RUN, lab.said(lost)
    assert "member m1 is revoked" in lab.said(lost)
    assert "its submission is refused: m1 signed it, and is revoked" in lab.call("ls")
    assert re.search(r"m1 +unreadable\n.*m1 signed it, and is revoked", lab.call("fleet", "machines"))
    lab.until(lambda: lab.is_done("count"))
    assert lab.holders("count") == ["m1", "m2"]
    assert result(400) in lab.of_run("m2", "count")
    assert "(m1 signed it, and is revoked): its training starts over" in lab.of_run("m2", "count")
    again = lab.worker("m1")
    assert again.wait(PATIENCE) == CANNOT_RUN
    assert "member m1 is revoked" in lab.said(again)


@pytest.mark.tf
def test_a_fit_that_goes_on_on_another_machine_ends_with_the_same_weights(lab):
    alone = subprocess.run(
        [sys.executable, lab.project / "fit.py"], capture_output=True, text=True, check=True, cwd=lab.place
    )
    expected = re.search(r"digest \w+", alone.stdout)[0]
    lab.scheduler()
    lab.worker("m1")
    lab.submit("fit", "fit.py", lease=SHORT)
    lab.until(lambda: lab.has_published("fit"))
    lab.kill_machine("m1")
    lab.worker("m2")
    lab.until(lambda: lab.is_done("fit"))
    assert lab.holders("fit") == ["m1", "m2"]
    assert expected in lab.of_run("m2", "fit")

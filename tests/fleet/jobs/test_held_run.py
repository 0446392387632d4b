"""`stallguard run --store URL --job NAME` for real: two homes on this machine stand for two machines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stallguard.fleet.store import records
from stallguard.fleet.store.opening import open_store
from tests.damage import change_last_byte
from tests.host.children import is_alive

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[3]
SCRIPT = Path(__file__).parents[1] / "scripts" / "count.py"
LEASE = 6.0
PATIENCE = 90.0
STEPS, PAUSE = 300, 0.05
QUICK = ("--set", f"store.lease={LEASE:g}s", "--set", "checkpoint.cost=1", "--checkpoint-every", "0.3s")


class Lab:
    """Machines with a store between them, in a directory."""

    def __init__(self, place, url):
        self.place, self.url = place, url
        self.started = []

    def start(self, machine, *options, steps=STEPS, pause=PAUSE, script=SCRIPT, more=()):
        (self.place / machine).mkdir(exist_ok=True)
        out = (self.place / machine / f"out-{len(self.started)}").open("a+")  # it is read meanwhile
        env = {**os.environ, "STALLGUARD_HOME": str(self.place / machine), "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "stallguard", "run", "--python", sys.executable, "--store", self.url,
             "--job", "count", *QUICK, *options, str(script), str(steps), str(pause), *more],
            stdout=out, stderr=subprocess.STDOUT, env=env, cwd=self.place, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        process.out = out
        self.started.append(process)
        return process

    @staticmethod
    def text(process):
        process.out.seek(0)
        return process.out.read()

    def log(self):
        store = open_store(self.url)
        names = sorted(store.names("jobs/count/log"))
        return [records.decode(store.read(f"jobs/count/log/{name}")) for name in names]

    def until(self, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.1)
        raise AssertionError("\n---\n".join([*map(self.text, self.started), *map(str, self.log())]))

    def until_published(self, number):
        self.until(lambda: any(isinstance(e, records.Generation) and e.number == number for e in self.log()))

    def close(self):
        for process in self.started:
            trainings = re.findall(r"^begins.* pid (\d+)$", self.text(process), re.MULTILINE)
            for pid in [*trainings, process.pid]:
                with contextlib.suppress(OSError, psutil.Error):
                    if pid == process.pid or str(SCRIPT.parent) in " ".join(psutil.Process(int(pid)).cmdline()):
                        os.kill(int(pid), signal.SIGKILL)
            process.wait()
            process.out.close()
        for sockets in self.place.rglob("runs/*/attempt.json"):  # of those that were killed
            shutil.rmtree(json.loads(sockets.read_text())["place"], ignore_errors=True)


@pytest.fixture
def lab(url, tmp_path):
    made = Lab(tmp_path, url)
    yield made
    made.close()


@pytest.fixture
def shared_folder(tmp_path):
    (tmp_path / "store").mkdir()
    made = Lab(tmp_path, f"file://{tmp_path / 'store'}")
    yield made
    made.close()


def result(steps=STEPS):
    digest = "0"
    for step in range(steps):
        digest = hashlib.sha256(f"{step} {digest}".encode()).hexdigest()
    return f"digest {digest}"


def assert_nothing_fenced(log):
    number = 0
    for entry in log:
        number = entry.number if isinstance(entry, records.Claim) else number
        assert entry.number == number


def test_a_job_goes_on_elsewhere_while_its_orphan_still_trains(lab):
    first = lab.start("a")
    lab.until_published(1)
    first.kill()
    published = next(e for e in reversed(lab.log()) if isinstance(e, records.Generation))
    second = lab.start("b")
    assert second.wait(PATIENCE) == 0, lab.text(second)
    said = lab.text(second)
    begun = int(re.search(r"begins at (\d+)", said)[1])
    assert 0 < begun < STEPS
    assert result() in said
    assert f"goes on from the checkpoint that run {published.run} published" in said
    log = lab.log()
    assert_nothing_fenced(log)
    assert [e.number for e in log if isinstance(e, records.Claim)] == [1, 2]
    assert (log[-1].code, log[-1].number) == (0, 2)
    states = [tuple((f.path, f.digest) for f in e.files) for e in log if isinstance(e, records.Generation)]
    assert len(set(states)) == len(states)  # no progress twice


@pytest.mark.tf
def test_a_fit_that_goes_on_elsewhere_ends_with_the_same_weights(shared_folder):
    lab, script = shared_folder, SCRIPT.parent / "fit.py"
    alone = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=lab.place)
    expected = re.search(r"digest \w+", alone.stdout)[0]
    first = lab.start("a", script=script)
    lab.until_published(1)
    first.kill()
    second = lab.start("b", script=script)
    assert second.wait(2 * PATIENCE) == 0, lab.text(second)
    assert "published at" in lab.text(second)
    assert expected in lab.text(second)
    log = lab.log()
    assert_nothing_fenced(log)
    positions = [e.position for e in log if isinstance(e, records.Generation)]
    assert positions == sorted(set(positions))  # no progress twice


def test_a_frozen_holder_wakes_and_stops_and_publishes_nothing(lab):
    # A lease that a busy machine renews in time; and steps enough for two of them.
    patient = ("--set", f"store.lease={3 * LEASE:g}s")
    first = lab.start("a", *patient, steps=4000)
    lab.until_published(1)
    first.send_signal(signal.SIGSTOP)
    second = lab.start("b", *patient, steps=4000)
    lab.until_published(2)
    before = len([e for e in lab.log() if e.number == 1])
    first.send_signal(signal.SIGCONT)
    assert first.wait(PATIENCE) == 75, lab.text(first)
    # A connection that died meanwhile answers late; the time since the last renewal says the same.
    assert re.search("the lease was taken by|cannot be renewed", lab.text(first)), lab.text(first)
    assert second.poll() is None, lab.text(second)
    log = lab.log()
    assert_nothing_fenced(log)
    assert len([e for e in log if e.number == 1]) == before


def test_a_machine_whose_own_run_was_killed_ends_its_orphan_and_goes_on_from_its_checkpoints(shared_folder):
    lab = shared_folder
    first = lab.start("a", steps=400)
    lab.until_published(1)
    pid = int(re.search(r"pid (\d+)$", lab.text(first), re.MULTILINE)[1])
    first.kill()
    first.wait()
    assert is_alive(pid)
    newest = max(slot for slot, entry in enumerate(lab.log(), 1) if isinstance(entry, records.Generation))
    noted = json.loads((lab.place / "a" / "runs" / "latest" / "job.json").read_text())["slot"]
    second = lab.start("a", steps=400)
    assert second.wait(PATIENCE) == 0, lab.text(second)
    said = lab.text(second)
    assert re.search("the training of run .*, whose stallguard was killed, is ended", said)
    assert not is_alive(pid)
    assert int(re.search(r"begins at (\d+)", said)[1]) > 0
    # Nothing is fetched, except if it was killed between a publication and the note of it here.
    assert ("published at" in said) == (noted != newest)
    assert result(400) in said
    log = lab.log()
    assert_nothing_fenced(log)
    assert [(e.code, e.number) for e in log if isinstance(e, records.HolderEnd)] == [(0, 2)]


def test_if_the_newest_checkpoint_is_damaged_the_one_before_is_used_and_that_is_said(shared_folder):
    lab = shared_folder
    first = lab.start("a", steps=4000)
    lab.until(lambda: len([e for e in lab.log() if isinstance(e, records.Generation)]) >= 3)
    first.kill()
    first.wait()
    *_, older, newest = [e for e in lab.log() if isinstance(e, records.Generation)]
    others = {file.name for file in older.files}
    (name, *_) = [file.name for file in newest.files if file.name not in others]
    file = lab.place / "store" / records.data_key("count", newest.number, name)
    change_last_byte(file)
    second = lab.start("b", "--max-time", "10s", steps=4000)
    assert second.wait(PATIENCE) == 75, lab.text(second)
    said = lab.text(second)
    assert f"that was published at {newest.at} cannot be used" in said
    assert f"it goes on from the one before, of {older.at}" in said
    assert int(re.search(r"begins at (\d+)", said)[1]) > 0
    assert_nothing_fenced(lab.log())


@pytest.mark.parametrize("code", [3, 75, 124, 125, 126, 127, 130, 143])
def test_a_script_that_ends_with_a_code_of_stallguards_own_has_failed(shared_folder, code):
    lab, script = shared_folder, SCRIPT.parent / "ends.py"
    first = lab.start("a", steps=3, pause=code, script=script, more=(str(lab.place / "begun"),))
    assert first.wait(PATIENCE) == code, lab.text(first)
    end = lab.log()[-1]
    assert (end.code, end.script_code, end.reason) == (code, code, "")
    assert not end.goes_on
    assert not end.could_not_begin
    (run,) = (path for path in (lab.place / "a" / "runs").iterdir() if not path.is_symlink())
    outcome = json.loads((run / "outcome.json").read_text())
    assert (outcome["exit_code"], outcome["script_exit_code"]) == (code, code)
    assert "can be resumed" not in lab.text(first)
    assert "--resume" not in lab.text(first)


def test_the_end_of_a_failed_job_names_the_error(shared_folder, tmp_path):
    lab, script = shared_folder, tmp_path / "fails.py"
    script.write_text("import stallguard\nstallguard.beat()\n{}[71]\n")
    only = lab.start("a", script=script)
    assert only.wait(PATIENCE) == 1, lab.text(only)
    assert lab.log()[-1].why.startswith("your script failed: KeyError: 71, at ")


def test_a_job_that_is_trained_is_not_started_again_and_one_that_is_done_neither(lab):
    first = lab.start("a", steps=100)
    lab.until(lambda: len(lab.log()) > 0)
    second = lab.start("b", steps=100)
    assert second.wait(PATIENCE) in (0, 75)
    if second.returncode == 75:
        assert f"is being trained by {os.uname().nodename} (pid {first.pid})" in lab.text(second)
    assert "begins" not in lab.text(second)
    assert first.wait(PATIENCE) == 0, lab.text(first)
    third = lab.start("b", steps=100)
    assert third.wait(PATIENCE) == 0
    assert "is done" in lab.text(third)
    assert "begins" not in lab.text(third)
    assert len(lab.log()) == len([e for e in lab.log() if e.number == 1])


def test_a_run_that_ended_gives_the_job_back_and_goes_on_here_from_its_own_checkpoints(shared_folder):
    lab = shared_folder
    first = lab.start("a")
    lab.until_published(1)
    first.send_signal(signal.SIGTERM)
    first.wait(PATIENCE)
    end = lab.log()[-1]
    assert (end.script_code, end.reason) == (None, records.REQUESTED)
    assert end.goes_on
    second = lab.start("a")
    assert second.wait(PATIENCE) == 0, lab.text(second)
    assert "published at" not in lab.text(second)  # nothing was fetched
    assert int(re.search(r"begins at (\d+)", lab.text(second))[1]) > 0
    assert result() in lab.text(second)


def test_a_holder_that_cannot_renew_ends_its_training_in_time(shared_folder):
    lab = shared_folder
    first = lab.start("a", steps=4000)
    lab.until_published(1)
    (lab.place / "store").rename(lab.place / "away")
    gone = time.monotonic()
    pid = int(re.search(r"pid (\d+)$", lab.text(first), re.MULTILINE)[1])
    while is_alive(pid):
        assert time.monotonic() - gone < LEASE + 1, lab.text(first)
        time.sleep(0.05)
    (lab.place / "away").rename(lab.place / "store")
    assert first.wait(PATIENCE) == 75, lab.text(first)
    assert "cannot be renewed" in lab.text(first)


def test_a_store_that_is_away_costs_nothing_but_freshness_if_the_settings_say_so(shared_folder):
    lab = shared_folder
    first = lab.start("a", "--set", "store.if_away=continue")
    lab.until_published(1)
    (lab.place / "store").rename(lab.place / "away")
    time.sleep(1.5 * LEASE)
    (lab.place / "away").rename(lab.place / "store")
    assert first.wait(PATIENCE) == 0, lab.text(first)
    assert result() in lab.text(first)
    assert lab.text(first).count("is not published") <= 1
    log = lab.log()
    assert [e.number for e in log if isinstance(e, records.Claim)] == [1]
    assert log[-1].code == 0


@pytest.mark.parametrize(
    ("options", "says", "code"),
    [
        (("--job", "a b"), "cannot be the name of a job", 2),
        (("--resume", "last"), "contradict each other", 2),
        (("--set", "store.lease=1s"), "store.lease cannot be", 2),
        (("--store", "gs://x"), "is not a store", 2),
        (("--store", "/nowhere/fleet"), "the store /nowhere/fleet cannot be used", 126),
        (("--store", ""), "store.job needs a store", 2),
    ],
)
def test_what_is_wrong_is_one_clear_error_before_anything_starts(shared_folder, options, says, code):
    first = shared_folder.start("a", *options)
    assert first.wait(PATIENCE) == code, shared_folder.text(first)
    assert says in shared_folder.text(first)
    assert "begins" not in shared_folder.text(first)
    assert not (shared_folder.place / "a" / "runs").exists()


def test_a_plain_run_imports_nothing_of_a_fleet(tmp_path):
    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "stallguard", "run", "--", "true"],
        capture_output=True, text=True, check=False, env=env,
    )  # fmt: skip
    assert done.returncode == 0
    assert not re.search(r"obstore|botocore|stallguard\.fleet", done.stderr)

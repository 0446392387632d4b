"""`stallguard debug dump` and `bundle` on a real run that hangs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LONG = 150.0  # seconds; only a broken test waits that long
SECRET = "hunter2-s3cr3t"
SCRIPT = """\
import sys, threading, stallguard
print("ready with", sys.argv[2], stallguard.beat() or "", flush=True)


def stuck():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


stuck()
"""


class Guarded:
    """A run whose script hangs, watched only."""

    def __init__(self, place):
        self.place, self.env = (place, dict(os.environ, STALLGUARD_HOME=str(place / "home"), PYTHONPATH=str(ROOT)))
        (place / "train.py").write_text(SCRIPT)
        words = ["run", "--observe", "--python", sys.executable, "train.py", "--api-key", SECRET]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stallguard", *words], env=self.env, cwd=place, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self.process.stdout.readline() == f"ready with {SECRET} \n".encode()
        self.run = (place / "home/runs/latest").resolve()

    def stallguard(self, *words, **more):
        argv = [sys.executable, "-m", "stallguard", *words]
        more = {"cwd": self.place} | more
        return subprocess.run(argv, env=self.env, capture_output=True, timeout=LONG, check=False, **more)

    def close(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(LONG)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    guarded = Guarded(tmp_path_factory.mktemp("run"))
    yield guarded
    guarded.close()


def until(fact):
    deadline = time.monotonic() + LONG
    while not fact() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert fact()


@pytest.fixture(scope="module")
def pid(guarded):
    until(lambda: list(guarded.run.glob("probe/*.page")))
    return int(next(guarded.run.glob("probe/*.page")).stem)


@pytest.mark.costly
def test_dump_shows_where_the_script_hangs_and_leaves_it_alone(guarded, pid):
    answer = guarded.stallguard("debug", "dump", "--again", "0.1")
    assert answer.returncode == 0, answer.stderr
    announced = answer.stdout.decode()
    assert announced.startswith("main thread")
    assert "  > train.py:8 in stuck\n  > train.py:11\n" in announced
    assert b"did not go on" in answer.stderr
    assert guarded.process.poll() is None


@pytest.mark.costly
def test_dump_takes_a_pid_and_a_directory_and_answers_in_json(guarded, pid, tmp_path):
    answer = guarded.stallguard("debug", "dump", str(pid), "--json", "-o", str(tmp_path / "here"))
    announced = json.loads(answer.stdout)
    assert (announced["pid"], announced["where"], announced["schema"]) == (pid, "train.py:8 in stuck", 1)
    assert (tmp_path / "here/manifest.json").exists()
    assert SECRET not in answer.stdout.decode()


@pytest.mark.costly
def test_without_a_name_a_run_that_lives_is_meant_before_a_newer_one_that_ended(guarded, pid):
    newer = guarded.run.with_name("29991231-235959-newer")
    shutil.copytree(guarded.run, newer, ignore=shutil.ignore_patterns("probe", "incidents", "dumps"))
    asked = json.loads((newer / "run.json").read_text())
    asked["supervisor"] = {"pid": 2**22 + 1, "started": 0.0}
    (newer / "run.json").write_text(json.dumps(asked))
    try:
        assert json.loads(guarded.stallguard("debug", "dump", "--json").stdout)["pid"] == pid
    finally:
        shutil.rmtree(newer)


@pytest.mark.parametrize("which", ["1", "no-such-run"])
def test_what_no_run_guards_is_exit_code_3_and_unharmed(guarded, which):
    answer = guarded.stallguard("debug", "dump", which)
    assert answer.returncode == 3
    assert answer.stdout == b""


def test_a_pid_that_is_not_guarded_is_never_signalled(guarded):
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        assert guarded.stallguard("debug", "dump", str(stranger.pid)).returncode == 3
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.costly
def test_a_bundle_is_one_file_without_the_secret_that_is_on_disk(guarded, pid, tmp_path):
    guarded.stallguard("debug", "dump")
    assert SECRET in (guarded.run / "run.json").read_text()
    until(lambda: SECRET in (guarded.run / "output.log").read_text())
    (guarded.run / "checkpoints").mkdir(exist_ok=True)
    (guarded.run / "checkpoints/weights.txt").write_text("large")
    answer = guarded.stallguard("debug", "bundle", "-o", str(tmp_path / "b.tar.gz"))
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.decode().strip() == str(tmp_path / "b.tar.gz")
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        texts = {member.name: archive.extractfile(member).read() for member in archive}
        assert all((member.uname, member.uid) == ("", 0) for member in archive)
    name = guarded.run.name
    assert {f"{name}/run.json", f"{name}/journal.jsonl", f"{name}/output.log", f"{name}/bundle.json"} <= set(texts)
    assert any("/dumps/" in each for each in texts)
    assert not any("checkpoints" in each or "probe/" in each for each in texts)
    assert not any(SECRET.encode() in text for text in texts.values())
    contents = json.loads(texts[f"{name}/bundle.json"])
    assert {f"{name}/{file['name']}" for file in contents["files"]} == set(texts) - {f"{name}/bundle.json"}
    assert sum(contents["removed"].values()) >= 2


@pytest.mark.costly
def test_a_bundle_can_go_to_standard_output(guarded):
    assert guarded.stallguard("debug", "bundle", "-o", "-").stdout[:2] == b"\x1f\x8b"


def test_a_bundle_that_cannot_be_written_leaves_nothing_half_made(guarded, tmp_path):
    answer = guarded.stallguard("debug", "bundle", "-o", str(tmp_path / "absent/b.tar.gz"))
    assert answer.returncode == 126
    assert b"cannot write" in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.costly
def test_what_has_ended_cannot_be_dumped_but_packed(tmp_path):
    ended = Guarded(tmp_path)
    ended.close()
    answer = ended.stallguard("debug", "dump")
    assert answer.returncode == 3
    assert b"incidents" in answer.stderr
    assert ended.stallguard("debug", "bundle", "--json").returncode == 0

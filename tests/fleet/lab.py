"""A machine of a fleet on this machine: its file, its store, its verbs as processes."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from stallguard.errors import CANNOT_RUN
from stallguard.fleet.machines import founding, trial
from stallguard.fleet.store import membership, orders
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.orders import Code, Submission, WorkerCard
from stallguard.fleet.store.signing import Signatures
from tests import command_line
from tests.fleet.members import invited, signs_for

ROOT = Path(__file__).parents[2]
CHILDREN = Path(__file__).parent / "children"
LIMIT = 60.0  # s for one verb on a busy machine; a verb that hangs is no error
# Each verb that needs the store, with what it asks.
ASKING = {
    "scheduler": ("fleet", "scheduler"), "worker": ("fleet", "worker"), "job": ("fleet", "job", "j"),
    "machines": ("fleet", "machines"), "cordon": ("fleet", "cordon", "mini", "--why", "hot"),
    "uncordon": ("fleet", "uncordon", "mini"), "submit": ("fleet", "submit", "--name", "new", "t.py"),
    "sweep": ("fleet", "sweep", "sweep.toml"), "run": ("run", "--store", "{store}", "--job", "j", "t.py"),
    "status": ("status", "j"), "logs": ("logs", "j"), "report": ("report", "j"), "stop": ("stop", "j"),
    "page": ("report", "--fleet", "--html", "{home}/fleet.html"),
}  # fmt: skip
WRITING = ("job", "cordon", "submit", "sweep", "run", "stop")
LISTS = (("ls", "--live"), ("ls",), ("morning",))


class Lab:
    """A machine with a fleet file, a project, and the processes that were started on it."""

    def __init__(self, place, file):
        self.place, self.file, self.started = place, file, []
        self.url = self.member.store
        self.project, self.env = place / "project", {}
        self.project.mkdir()
        (self.project / "t.py").write_text("print('trained')\n")
        (self.project / "sweep.toml").write_text('name = "s"\ncommand = ["t.py"]\n[parameters]\nrate = [1, 2]\n')

    @property
    def member(self):
        return membership.recall({"STALLGUARD_FLEET": str(self.file)})

    @property
    def signatures(self):
        return Signatures(self.member)

    def file_of(self, name):
        """Return the fleet file of one more member, for `STALLGUARD_FLEET`."""
        return str(invited(self.file, name))

    @property
    def store(self):
        return FolderStore(Path(self.url.removeprefix("file://")))

    def change(self, **facts):
        """Write the fleet file anew with other content."""
        membership.write(self.file, replace(self.member, **facts), replace=True)
        self.url = self.member.store

    def words(self, words):
        names = {"store": self.url, "home": str(self.place)}
        return [sys.executable, "-m", "stallguard", *(word.format(**names) for word in words)]

    def environment(self, home="here", **more):
        own = {"STALLGUARD_FLEET": str(self.file), "STALLGUARD_HOME": str(self.place / home)}
        own |= {"PYTHONPATH": str(ROOT), "HOME": str(self.place), "TZ": "UTC"}
        return {**os.environ, **own, **self.env, **more}

    def verb(self, *words, code=None, apart=False, **more):
        """Run a verb to its end; return what it says.  A trace is never an answer.

        What serves or trains has a process of its own, and what hides packages.
        """
        is_process = words[0] == "run" or words[:2] in (("fleet", "scheduler"), ("fleet", "worker"), ("fleet", "job"))
        is_apart = apart or is_process or "HIDE" in more
        kind = command_line.process if is_apart else command_line.stallguard
        done = kind(*self.words(words)[3:], env=self.environment(**more), cwd=self.project)
        said = done.stdout + done.stderr
        assert "Traceback" not in said, said
        assert code is None or done.returncode == code, (done.returncode, said)
        return said

    def refused(self, *words, code=CANNOT_RUN, **more):
        """Run a verb that must end with one error; return it."""
        said = self.verb(*words, code=code, **more)
        assert said.count("stallguard: ") == 1, said
        return said

    def start(self, *words, home="here", wrapper=(), **more):
        command = self.words(words)
        if "--name" in words and words[:2] == ("fleet", "worker"):  # a machine is that of its member
            more["STALLGUARD_FLEET"] = self.file_of(words[words.index("--name") + 1])
        command[1:3] = wrapper or command[1:3]
        out = (self.place / f"out-{len(self.started)}").open("a+")  # it is read meanwhile
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.project,
            env=self.environment(home, **more),
        )  # fmt: skip
        process.out = out
        self.started.append(process)
        return process

    def until(self, *texts, of=None, ask=None):
        """Wait until a process, or a verb, says these texts; return all that it says."""
        end, said = time.monotonic() + LIMIT, ""
        while time.monotonic() < end:
            said = text_of(of) if of else self.verb(*ask)
            if all(text in said for text in texts):
                return said
            time.sleep(0.1)
        raise AssertionError(f"{texts} are not in: {said}")

    def close(self):
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            process.wait(LIMIT)
            process.out.close()


def text_of(process):
    process.out.seek(0)
    return process.out.read()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def make(place, file, store, **facts):
    pytest.importorskip("cryptography")
    pytest.importorskip("distributed")
    now = facts.pop("now", None) or dt.datetime.now(dt.UTC)
    url, by = f"file://{store}", founding.beside(file)
    with quickly_tried():
        return founding.found(url, f"127.0.0.1:{free_port()}", 30, file, by, now, force=True, **facts)


@contextlib.contextmanager
def quickly_tried():
    """Try a store without the second process; machines/test_trial.py has that, and each test of `fleet init`."""
    kept = dict(trial.PROMISES)
    del trial.PROMISES["a second process"]
    try:
        yield
    finally:
        trial.PROMISES.update(kept)


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "store").mkdir()
    make(tmp_path, tmp_path / "fleet.toml", tmp_path / "store")
    made = Lab(tmp_path, tmp_path / "fleet.toml")
    yield made
    made.close()


@pytest.fixture
def mounted(lab):
    """The store on a file system of its own, of 2 MB; a function that mounts it anew with other options."""
    if os.geteuid() or sys.platform != "linux":
        pytest.skip("only root on Linux can mount a file system")
    place = lab.place / "mount"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", place], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    shutil.copytree(lab.place / "store", place / "store")
    lab.change(store=f"file://{place}/store")

    def again(options):
        subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)

    yield again
    lab.close()
    lab.started.clear()
    subprocess.run(["umount", "-l", place], check=True)


def fill(lab):
    """Leave no room on the file system of the store."""
    place, zeros = lab.place / "mount" / "other", Path("/dev/zero")
    with place.open("ab", buffering=0) as file, zeros.open("rb") as source, pytest.raises(OSError, match="No space"):
        shutil.copyfileobj(source, file, 4096)


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def submission(job, **facts):
    code = Code(digest="a" * 64, size=1)
    return Submission(schema=1, job=job, words=("t.py",), options=(), code=code, **facts)


def card(lab, host, **facts):
    now = dt.datetime.now(dt.UTC).isoformat()
    given = {"at": now, "state": "ready", "resources": {"slots": 1.0, "memory": 8.0}} | facts
    made = orders.encode(WorkerCard(schema=1, host=host, **given), signs_for(host, lab.file))
    lab.store.replace(orders.WorkerCard.place(host=host), made)

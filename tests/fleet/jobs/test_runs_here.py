"""The runs of a machine while they are prepared: what ends, what begins, and a store that does not answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from functools import partial

import pytest

from stallguard.core.time_spent import Spent
from stallguard.errors import STOPPED_ON_TIME, StallguardError
from stallguard.fleet.jobs import preparing, runs_here
from stallguard.fleet.jobs.runs_here import Edges, NotBegun, Prepared, RunsHere, log_of
from stallguard.fleet.store import joblog, orders, records
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.orders import Code, Submission
from stallguard.fleet.store.records import Damaged, Holder
from stallguard.fleet.store.signing import Signatures
from stallguard.storage import private, run_files
from stallguard.storage.paths import RunDir

PATIENCE = 60.0


class Here:
    """The runs of a machine whose preparation a test holds up; a run here is a program that prints its name."""

    def __init__(self, tmp_path, member):
        self.store = FolderStore(tmp_path / "store")
        self.place, self.said, self.begun = tmp_path, [], []
        self.prepares, self.released, self.was_given_up = threading.Event(), threading.Event(), False
        edges = Edges(self.prepare, self.said.append)
        mine = Signatures(member)
        self.runs = RunsHere(mine, self.store, "mac", "w1", {}, edges)
        self.runs._command = self.command
        code = Code(digest="0" * 64, size=1)
        made = Submission(schema=1, job="job", words=("t.py",), options=(), code=code)
        self.store.create(orders.Submission.place(job="job"), orders.encode(made, mine))

    def prepare(self, submission, is_given_up):
        self.prepares.set()
        until = time.monotonic() + PATIENCE
        while not self.released.wait(0.01) and not is_given_up() and time.monotonic() < until:
            pass
        self.was_given_up = is_given_up()
        return Prepared(self.place, self.place, "")

    def command(self, submission, prepared):
        self.begun.append(submission.job)
        return [sys.executable, "-c", "pass"]

    async def is_preparing(self):
        await asyncio.to_thread(self.prepares.wait, PATIENCE)


@pytest.fixture
def here(home, found, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    return partial(Here, tmp_path, found(name="mac"))


def test_a_job_that_is_ended_while_it_is_prepared_does_not_begin(here):
    async def steps():
        one = here()
        training = asyncio.ensure_future(one.runs.train("job", ""))
        await one.is_preparing()
        await asyncio.wait_for(one.runs.end(), PATIENCE)
        with pytest.raises(NotBegun):
            await training
        return one

    one = asyncio.run(steps())
    assert one.was_given_up
    assert not one.begun
    assert not one.store.names(orders.refusals_folder("job"))  # it can be given to this machine again


def test_a_cordon_gives_up_what_is_prepared_and_leaves_what_runs(here):
    async def steps():
        one = here()
        training = asyncio.ensure_future(one.runs.train("job", ""))
        await one.is_preparing()
        one.runs.give_up()
        with pytest.raises(NotBegun):
            await training
        one.released.set()
        assert await asyncio.wait_for(one.runs.train("job", ""), PATIENCE) == 0
        return one

    assert asyncio.run(steps()).begun == ["job"]


def test_a_job_that_is_asked_for_twice_at_once_begins_once(here):
    async def steps():
        one = here()
        one.released.set()
        assert await asyncio.gather(one.runs.train("job", ""), one.runs.train("job", "")) == [0, 0]
        return one

    one = asyncio.run(steps())
    assert one.begun == ["job"]
    assert one.runs.jobs == ()


def test_a_submission_that_was_damaged_later_is_refused_by_this_machine_with_the_reason(here):
    async def steps():
        one = here()
        key = orders.Submission.place(job="job")
        one.store.remove(key)
        one.store.replace(key, b"{")
        with pytest.raises(Damaged):
            await one.runs.train("job", "")
        return one

    one = asyncio.run(steps())
    refusal = orders.decode_refusal(
        one.store.read(orders.Refusal.place(job="job", host="mac")), "job", "mac", one.runs._signatures
    )
    assert "not a signed record" in refusal.why
    assert not one.begun


def test_a_preparation_that_hangs_in_the_kernel_does_not_hold_up_the_end(here, monkeypatch):
    monkeypatch.setattr("stallguard.fleet.jobs.runs_here.GIVES_UP", 0.1)
    hangs = threading.Event()

    async def steps():
        one = here()
        one.runs._edges = one.runs._edges._replace(prepare=lambda *_: hangs.wait(PATIENCE))
        training = asyncio.ensure_future(one.runs.train("job", ""))
        while not one.runs.jobs:  # noqa: ASYNC110 - it sends no event
            await asyncio.sleep(0.01)
        await asyncio.wait_for(one.runs.end(), PATIENCE / 2)
        with pytest.raises(NotBegun):
            await training
        return one

    try:
        assert not asyncio.run(steps()).begun
    finally:
        hangs.set()


def test_an_environment_that_is_not_wanted_any_more_is_not_made_further(home, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f"#!/bin/sh\ntouch {tmp_path}/begun\nexec sleep {PATIENCE * 10:g}\n")
    uv.chmod(0o755)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "uv.lock").write_text("version = 1\n")
    (tmp_path / "project" / "pyproject.toml").write_text("[project]\nname = 'a'\n")
    env = {"PATH": f"{uv.parent}:/usr/bin:/bin"}
    with pytest.raises(preparing.EnvironmentImpossible, match="not wanted any more"):
        preparing.interpreter(
            tmp_path / "project", "", "", env, is_given_up=(tmp_path / "begun").exists, limit=PATIENCE
        )


def test_a_job_of_ray_that_is_ended_while_it_is_prepared_ends_with_75_and_never_begins(
    home, found, tmp_path, monkeypatch
):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    member = found()
    one = Here(tmp_path, member)

    def prepare(store, env, submission, is_given_up):
        signal.raise_signal(signal.SIGTERM)
        return one.prepare(submission, is_given_up)

    monkeypatch.setattr(preparing, "prepare", prepare)
    with pytest.raises(StallguardError) as raised:
        runs_here.train_one(member, "job", {}, one.said.append)
    assert raised.value.code == STOPPED_ON_TIME
    assert one.was_given_up


def test_what_a_run_prints_here_does_not_grow_without_a_limit(here, monkeypatch):
    monkeypatch.setattr("stallguard.fleet.jobs.runs_here.MOST_LOG", 1000)
    monkeypatch.setattr("stallguard.fleet.jobs.runs_here.LOOK", 0.05)
    script = "import time\nfor i in range(50):\n    print('x' * 400, flush=True)\n    time.sleep(0.1)\n    "

    async def steps():
        one = here()
        one.released.set()
        emptied = one.place / "emptied"
        until_emptied = f"import os\n    if os.path.exists({str(emptied)!r}): break\n"
        one.runs._command = lambda *_: [sys.executable, "-c", script + until_emptied]
        training = asyncio.ensure_future(one.runs.train("job", ""))
        largest = size = 0
        while not training.done():
            await asyncio.sleep(0.02)
            with contextlib.suppress(FileNotFoundError):
                size = log_of("job").stat().st_size
            if size < largest:
                emptied.touch()
            largest = max(size, largest)
        assert emptied.exists()
        return await training

    assert asyncio.run(steps()) == 0


async def begun_asleep(one):
    """Begin a run that does nothing and makes no directory; return its training."""
    one.released.set()
    one.runs._command = lambda *_: [sys.executable, "-c", "import time; time.sleep(600)"]
    training = asyncio.ensure_future(one.runs.train("job", ""))
    while not any("begins" in line for line in one.said):  # noqa: ASYNC110 - it sends no event
        await asyncio.sleep(0.01)
    return training


def test_a_run_that_has_no_directory_yet_is_found_by_the_next_worker_and_ended_with_it(here):
    async def steps():
        one = here()
        first = await begun_asleep(one)
        edges = one.runs._edges  # a worker that knows nothing of the one before
        later = RunsHere(one.runs._signatures, one.store, "mac", "w2", {}, edges)
        await later.find()
        assert later.jobs == ("job",)
        assert later.taken(later.jobs) == {"slots": 1.0}
        with pytest.raises(NotBegun, match="alive"):
            later._begin(later._running["job"].submission, Prepared(one.place, one.place, ""), "", log_of("job"))
        await asyncio.wait_for(later.end(), PATIENCE)
        await asyncio.wait_for(first, PATIENCE)
        await later.find()
        assert later.jobs == ()

    asyncio.run(steps())


def test_the_lease_of_a_run_that_was_killed_before_it_had_a_directory_is_freed_by_the_next_worker(here):
    """Else the machine, which is there, would look like a lost one: it would be cordoned and get no job."""

    async def steps():
        one = here()
        first = await begun_asleep(one)
        child = one.runs._running["job"].child
        holder = Holder(host="mac", boot="b", pid=child.pid, nonce="n")
        joblog.perform(joblog.claim("job", joblog.Tail(), holder, ""), one.store)
        first.cancel()  # the earlier worker: it sees nothing of the end
        one.runs._running["job"].task.cancel()
        later = RunsHere(one.runs._signatures, one.store, "mac", "w2", {}, one.runs._edges)
        await later.find()
        child.kill()
        child.wait()
        await asyncio.wait_for(later._running["job"].task, PATIENCE)
        return joblog.perform(joblog.read_end("job"), one.store)

    tail = asyncio.run(steps())
    assert tail.is_free
    assert (tail.outcome.reason, tail.outcome.goes_on) == (records.KILLED, True)


def test_a_run_that_an_earlier_worker_began_takes_its_room_until_its_process_has_ended(here, tmp_path, monkeypatch):
    """It publishes its end after it has written one here."""
    monkeypatch.setattr(runs_here, "LOOK", 0.05)
    one, run = here(), RunDir(tmp_path / "run")
    run.path.mkdir()
    run_files.conclude(run, run_files.ended(7, "", Spent()))

    async def steps():
        with private.locked(runs_here.lock_of("job")):
            ended = asyncio.ensure_future(one.runs._until_over(run, "job"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(ended), 0.5)
        return await asyncio.wait_for(ended, PATIENCE)

    private.ensure(runs_here.locks())
    assert asyncio.run(steps()) == 7

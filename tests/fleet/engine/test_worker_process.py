"""The loop of a worker with a store that stops answering."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from stallguard.core.readings import Memory
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.engine import worker_process
from stallguard.fleet.jobs import preparing, runs_here
from stallguard.fleet.machines import machine_list
from stallguard.fleet.machines.machine_beat import MachineFiles
from stallguard.fleet.machines.offers import GB, Offer, WorkerOptions
from stallguard.fleet.store import beside_loop, orders, signing
from stallguard.fleet.store.folder_store import FolderStore
from stallguard.fleet.store.orders import Code, Cordon, RunStatus, Submission, WorkerCard
from stallguard.fleet.store.signing import Signatures
from stallguard.host import system
from stallguard.storage import paths
from tests.fleet.members import signs

pytest.importorskip("distributed")
PATIENCE = 60.0

LONG_AGO = time.time() - 100 * 86400


class Hanging(FolderStore):
    """A share that is mounted hard, and whose server is away: its requests come back after it is there again."""

    def __init__(self, folder):
        super().__init__(folder)
        self.is_back, self.asked = threading.Event(), threading.Event()

    def read(self, key):
        self.asked.set()
        self.is_back.wait(PATIENCE)
        return super().read(key)

    def replace(self, key, data):
        self.is_back.wait(PATIENCE)
        super().replace(key, data)


def test_a_worker_obeys_signals_while_its_store_hangs(home, found, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    monkeypatch.setattr(beside_loop.answered, "__defaults__", (0.1,))
    monkeypatch.setattr(beside_loop.Asking.answered, "__defaults__", (0.1,))
    member, store, said = found(name="mac"), Hanging(tmp_path / "store"), []
    options = WorkerOptions(host="mac", slots=1, memory=None, between=None, mains_only=False)
    worker = worker_process._WorkerProcess(
        Signatures(member), store, "mac", "here", Offer({"slots": 1}, {}, ""), options, dict(os.environ), said.append
    )

    async def steps():
        running = asyncio.ensure_future(worker.run())
        await asyncio.to_thread(store.asked.wait, PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, PATIENCE / 2)

    try:
        asyncio.run(steps())
    finally:
        store.is_back.set()
    assert any("leaves the fleet" in line for line in said)


def test_a_second_worker_of_one_home_is_refused_and_one_can_start_after_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    (tmp_path / "fleet").mkdir()
    with (
        worker_process._only_worker(),
        pytest.raises(StallguardError, match="already") as raised,
        worker_process._only_worker(),
    ):
        pass
    assert raised.value.code == CANNOT_RUN
    with worker_process._only_worker() as home:
        pass
    with worker_process._only_worker() as again:
        assert again == home != ""


# ---- one name, one machine ------------------------------------------------------------------------------------------


OWN = signs("mac")


def card_of(home, *, at="2026-06-10T12:00:00Z", state="ready", by=OWN, **more):
    made = WorkerCard(schema=1, host="mac", at=at, state=state, worker="w", home=home, **more)
    return orders.encode(made, by)


def test_a_name_is_free_without_a_card_after_an_end_and_for_a_worker_of_the_same_home():
    assert machine_list.name_state(None, None, "mac", "here", OWN) == machine_list.FREE
    assert machine_list.name_state(card_of("there", state="gone"), None, "mac", "here", OWN) == machine_list.FREE
    assert machine_list.name_state(card_of("here"), None, "mac", "here", OWN) == machine_list.FREE


@pytest.mark.parametrize("card", [card_of("there", by=signs("pro")), b"{damaged"], ids=["of another", "damaged"])
def test_a_card_that_the_machines_member_did_not_sign_is_of_no_worker(card):
    assert machine_list.name_state(card, None, "mac", "here", OWN) == machine_list.FREE


@pytest.mark.parametrize(
    "card",
    [card_of("there"), card_of(""), OWN.sign("workers/mac", b'{"schema":2}')],
    ids=["of another", "of none", "of a later version"],
)
def test_a_card_of_another_home_is_watched_and_the_name_is_taken_once_it_changes(card):
    later = card_of("there", at="2026-06-10T12:01:00Z")
    assert machine_list.name_state(card, None, "mac", "here", OWN) == machine_list.WATCHED
    assert machine_list.name_state(card, card, "mac", "here", OWN) == machine_list.WATCHED
    assert machine_list.name_state(later, card, "mac", "here", OWN) == machine_list.TAKEN


def home_in(store, worker):
    return orders.decode_card(store.read(orders.WorkerCard.place(host="mac")), "mac", worker._signatures).home


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def worker(home, found, tmp_path, monkeypatch):
    """A worker named mac, with a store that no other one writes to, and what it says."""
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    monkeypatch.setattr(worker_process, "LOOK", 0.05)
    monkeypatch.setattr(worker_process, "WATCHES", 0.5)
    store, said, mine = FolderStore(tmp_path / "store"), [], Signatures(found(name="mac"))
    options = WorkerOptions(host="mac", slots=1, memory=None, between=None, mains_only=False)
    made = worker_process._WorkerProcess(
        mine, store, "mac", "here", Offer({"slots": 1}, {}, ""), options, dict(os.environ), said.append
    )
    return made, store, said


def test_a_second_worker_of_one_name_is_refused_with_the_reason(worker, monkeypatch):
    made, store, said = worker
    monkeypatch.setattr(worker_process, "WATCHES", PATIENCE)
    store.replace(orders.WorkerCard.place(host="mac"), card_of("there", by=made._signatures))

    async def steps():
        running = asyncio.ensure_future(made.run())
        await asyncio.to_thread(until, lambda: any("watched whether it lives" in line for line in said))
        live = card_of("there", at="2026-06-10T12:01:00Z", address="tls://10.0.0.7:4123", by=made._signatures)
        store.replace(orders.WorkerCard.place(host="mac"), live)
        with pytest.raises(StallguardError, match="another worker has the name mac") as raised:
            await asyncio.wait_for(running, PATIENCE)
        assert "tls://10.0.0.7:4123" in str(raised.value)
        assert raised.value.code == CANNOT_RUN
        assert store.read(orders.WorkerCard.place(host="mac")) == live

    asyncio.run(steps())


def test_the_name_of_a_worker_that_is_dead_is_taken_over_and_one_that_comes_back_ends(worker):
    made, store, said = worker
    store.replace(orders.WorkerCard.place(host="mac"), card_of("there", by=made._signatures))
    key = orders.WorkerCard.place(host="mac")

    async def steps():
        running = asyncio.ensure_future(made.run())
        await asyncio.to_thread(until, lambda: home_in(store, made) != "there" and made._card is not None)
        assert any("watched whether it lives" in line for line in said)
        back = card_of("there", at="2026-06-10T13:00:00Z", by=made._signatures)
        store.replace(key, back)
        made._carded, made._names_at = -worker_process.RENEWS, 0.0  # some minutes later
        with pytest.raises(StallguardError, match="another worker has the name mac"):
            await asyncio.wait_for(running, PATIENCE)
        assert store.read(key) == back  # its card stays

    asyncio.run(steps())


# ---- a clock that is off ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "clock", "says"), [(0.4, 0.0, ""), (-10800.0, 10800.0, "ahead"), (90.0, -120.0, "behind")]
)
def test_a_clock_that_is_off_is_said_once_and_in_the_card(worker, delay, clock, says):
    made, _, said = worker
    made._dask = SimpleNamespace(scheduler_delay=delay)
    assert [made._clock(), made._clock()] == [clock, clock]
    lines = [line for line in said if "clock" in line]
    assert len(lines) == bool(says)
    assert says in "".join(lines)


def test_what_is_not_known_of_a_clock_is_not_zero(worker):
    assert worker[0]._clock() is None


def test_the_age_of_a_card_is_corrected_by_what_it_says_of_its_clock():
    now = dt.datetime(2026, 6, 10, 12, 0, tzinfo=dt.UTC)
    ahead = "2026-06-10T15:00:00Z"

    def seen(at, clock):
        return machine_list.described("mac", card_of("there", at=at, clock=clock), None, OWN, now)

    assert (seen(ahead, 10800.0).state, seen(ahead, 10800.0).seen) == ("ready", 0.0)
    late = seen("2026-06-10T14:50:00Z", 10800.0)  # ten minutes ago, by the scheduler's clock
    assert (late.state, late.seen) == ("silent", 600.0)
    unknown = seen(ahead, None)
    assert (unknown.state, unknown.seen) == ("ready", None)
    assert "3 h ahead of the one here: whether it is silent is not known" in unknown.why


class Counting(FolderStore):
    """A store that remembers which keys are read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []

    def read(self, key):
        self.asked.append(key)
        return super().read(key)


def test_a_worker_that_is_connected_asks_for_no_cordon_and_at_once_when_it_is_disconnected(
    home, found, tmp_path, monkeypatch
):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    signatures, store, said = Signatures(found(name="mac")), Counting(tmp_path / "store"), []
    options = WorkerOptions(host="mac", slots=1, memory=None, between=None, mains_only=False)
    worker = worker_process._WorkerProcess(
        signatures, store, "mac", "here", Offer({"slots": 1}, {}, ""), options, dict(os.environ), said.append
    )
    cordon = Cordon(schema=1, host="mac", at="", why="its GPU hangs")
    store.replace(orders.Cordon.place(host="mac"), orders.encode(cordon, signatures))
    connection = SimpleNamespace(status=SimpleNamespace(name="running"), address="tls://mac", scheduler_delay=0.0)
    worker._dask = connection

    async def steps():
        for _ in range(5):
            await worker._look()
        assert store.asked == [signing.REVOKED]  # its card is written and not read: it has just been
        connection.status = SimpleNamespace(name="closed")  # by the scheduler, which has read the cordon
        for _ in range(5):
            await worker._look()

    asyncio.run(steps())
    assert store.asked.count(orders.Cordon.place(host="mac")) == 1  # and again after some seconds
    assert said[-1] == "mac takes no jobs: cordoned: its GPU hangs"


def test_the_card_has_how_a_run_stands_and_is_written_before_its_minute_is_over_if_that_has_changed(
    worker, monkeypatch
):
    monkeypatch.setattr(worker_process, "RENEWS_IF_NEWS", 0.3)
    made, store, _ = worker
    clock = system
    run, began = MachineFiles(store.url, "mac", system.boot()), clock.monotonic()

    def cards():
        card = orders.decode_card(store.read(orders.WorkerCard.place(host="mac")), "mac", made._signatures)
        return {name: one.status for name, one in card.statuses.items()}

    def stands(state, batches):
        """Say so, as a run does every few seconds."""
        run.show("job", 1, 120.0, clock.monotonic() + clock.asleep())
        return run.report("job", 1, RunStatus(1, "noon", {"state": state, "batches": batches}))

    async def steps():
        running = asyncio.ensure_future(made.run())
        await asyncio.to_thread(until, lambda: stands("running", 1))
        await asyncio.to_thread(until, lambda: cards() == {"job@1": {"state": "running", "batches": 1}})
        for batches in range(2, 30):
            stands("running", batches)
            await asyncio.sleep(0.02)
        assert cards()["job@1"]["batches"] == 1  # that is no news
        await asyncio.to_thread(until, lambda: stands("stalled", 30) and cards()["job@1"]["state"] == "stalled")
        assert clock.monotonic() < began + worker_process.RENEWS
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(steps())
    assert cards() == {}


@pytest.fixture
def left(tmp_path, monkeypatch):
    """A function that makes a file, or a folder with one in it, that was used long ago."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "state"))

    def make(path, *, is_folder=False, at=LONG_AGO):
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_folder:
            (path / "bin").mkdir(parents=True)
        else:
            path.touch()
        os.utime(path, (at, at))
        return path

    return make


def test_an_environment_that_no_job_used_for_a_month_goes_and_one_in_use_stays(left):
    home = preparing.home()
    for name in ("old", "busy", "new"):
        left(home / name, is_folder=True)
        left(home / f"{name}.whole", at=time.time() if name == "new" else LONG_AGO)
    worker_process.remove_unused((), (str(home / "busy" / "bin" / "python"),))
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"busy", "new"}
    assert not (home / "old.whole").exists()
    worker_process.remove_unused((), ())  # its use counts from the last time at which it was in use
    assert (home / "busy").is_dir()


def test_logs_and_fetched_checkpoints_that_are_left_over_go_and_those_in_use_stay(left):
    old, busy = left(runs_here.log_of("old")), left(runs_here.log_of("busy"))
    fetched = left(paths.home() / "fetched" / "job-1", is_folder=True)
    now = left(paths.home() / "fetched" / "job-2", is_folder=True, at=time.time())
    worker_process.remove_unused(("busy",), ())
    assert [path.exists() for path in (old, busy, fetched, now)] == [False, True, False, True]


def test_a_machine_that_has_had_no_job_has_nothing_to_remove(left):
    worker_process.remove_unused((), ())


def test_the_memory_of_runs_that_a_worker_finds_when_it_begins_is_offered_to_later_jobs(
    home, found, tmp_path, monkeypatch
):
    """Else a machine whose worker began beside a training would offer less for as long as that worker lives."""
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    monkeypatch.setattr(system, "memory", lambda: Memory(total=64 * GB, available=26 * GB))
    worker = worker_process._WorkerProcess(
        Signatures(found(name="mac")), FolderStore(tmp_path / "store"), "mac", "here",
        Offer({"slots": 2, "memory": 26.0}, {}, ""), WorkerOptions(host="mac", slots=2), {}, print,
    )  # fmt: skip
    code = Code(digest="0" * 64, size=1)
    needs = Submission(schema=1, job="job", words=("t.py",), code=code, needs={"memory": 30.0})
    worker._runs._running["job"] = runs_here._Running(needs)
    worker._offer_what_runs_use()
    worker._carried = frozenset({"job"})
    assert worker._offer.resources == {"slots": 2, "memory": 56.0}
    assert worker._rest() == {"slots": 1.0, "memory": 26.0}

"""`stallguard fleet worker`: offers this machine to the fleet's scheduler, and trains what it gets.

One loop looks at what decides whether the machine is open: its hours, mains power, a cordon.  If it is open it is
connected to the scheduler as a worker of Dask; a connection that is lost is made again, and the runs go on meanwhile
(runs_here.py).  If its hours are over it disconnects and ends its runs, each with a checkpoint.  If it is cordoned it
disconnects, and what runs goes on to its end.  In both cases a job that is still being prepared does not begin here.
A store that does not answer must not hold up the loop: signals and hours take effect all the same (beside_loop.py).

The store has a card of the machine, which is renewed once a minute, so that each member can see it without a
connection to the scheduler.  It renews the leases of all runs here too (machine_beat.py).  What has to be read
from the store is read seldom while the scheduler is connected, which says when there is something to read.

A worker can live for years, so it removes what jobs of the fleet left on this machine and no job uses any more.

It reads what `offers` and `hours` judge, this machine and the environment of its jobs, and imports no framework: the
environment's interpreter is asked for the versions of its packages.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import fcntl
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from stallguard.core.messages import duration
from stallguard.doctor import interrogate
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.engine import dask_engine
from stallguard.fleet.engine.dask_engine import worker_name
from stallguard.fleet.jobs import held_run, preparing, publishing, runs_here, unpacking
from stallguard.fleet.jobs.runs_here import Edges, RunsHere
from stallguard.fleet.machines import machine_beat, machine_list, member_tls, offers
from stallguard.fleet.machines.machine_beat import MachineLeases
from stallguard.fleet.machines.offers import Offer, OfferedMachine, Power, WorkerOptions
from stallguard.fleet.store import Store, StoreError, opening, orders
from stallguard.fleet.store.beside_loop import Asking
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.orders import WorkerCard
from stallguard.fleet.store.records import Damaged
from stallguard.fleet.store.signing import Signatures
from stallguard.host import system
from stallguard.launch.command import choose_interpreter
from stallguard.storage import paths, private, run_files

if TYPE_CHECKING:
    from distributed import Worker as DaskWorker

LOOK = 2.0  # s between two looks at hours, power and cordon
ASKS = 10.0  # s between two looks at a cordon while it is not connected
CONNECTS, CLOSES = 10.0, 5.0  # s that the scheduler has to answer, and a connection to end
CLEANS = 86400.0  # s between two removals of what is not used any more
RENEWS = 60.0  # s between two cards
RENEWS_IF_NEWS = 10.0  # the same if the state of a run is another one, such as stalled
WATCHES = RENEWS + 15.0  # s in which a worker that lives elsewhere has renewed its card
# s between two looks at the list of revoked members: without a connection to the scheduler, and in any case
LISTS, LISTS_AT_LEAST = 60.0, 600.0
NAMES = 600.0  # s between two looks whether a worker elsewhere has written the card
COMPARED = 20  # machines, with whose versions its own are compared: a thousand that start would read all cards of all
CLOCK_OFF = 60.0  # s that a clock can differ from the scheduler's before it is said
READY, BUSY, CLOSED, CORDONED, AWAY, GONE = "ready", "busy", "closed", "cordoned", "away", "gone"

OLD_LOGS = 14 * 86400.0  # s: as long as the code of a job
OLD_FETCHED = 86400.0  # s: checkpoints of a run that was killed while it fetched them


def work(membership: Membership, options: WorkerOptions, env: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Work until SIGINT or SIGTERM; then end what runs here, each with a checkpoint.  Raises StallguardError."""
    signatures = Signatures(membership)
    dask_engine.security(signatures)  # raises if the extra is missing, or the certificates are no good
    import dask

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is said in our words

    store = opening.open_fleet_store(membership)
    _take_list(signatures, store, say)
    offer = offers.offer(machine_facts(env, Path.cwd()), options.slots, options.memory)
    offer = offer._replace(versions=offer.versions | dask_engine.versions())
    for unknown in offer.unknown:
        say(f"not offered: {unknown}")
    name = held_run.machine_name({**env, held_run.MACHINE: options.host})
    safe = dask_engine.dask_settings(membership, paths.home() / "fleet" / "dask")
    own = dask.config.set({**safe, **dask_engine.SETTINGS})
    with _only_worker() as home, own:
        asyncio.run(_WorkerProcess(signatures, store, name, home, offer, options, env, say).run())


@contextlib.contextmanager
def _only_worker() -> Iterator[str]:
    """Yield the random name of this home, in which one worker can work at a time.

    Raises StallguardError if one works here already: each would offer the same GPU, and end the other's runs.
    """
    with open(paths.home() / "fleet" / "worker.lock", "a+", opener=private.opener) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StallguardError(
                "a worker of the fleet runs on this machine already",
                why="two would offer the same memory and the same GPU twice",
                cure="for more jobs at once: --slots N; to end a service: stallguard fleet worker --uninstall",
                code=CANNOT_RUN,
            ) from error
        lock.seek(0)
        home = lock.read().strip()
        if not home:
            home = os.urandom(8).hex()
            lock.write(home)
            lock.flush()
        yield home


class _WorkerProcess:
    """The loop.  `host`: this machine's name in the fleet."""

    def __init__(
        self, signatures: Signatures, store: Store, host: str, home: str, offer: Offer, options: WorkerOptions,
        env: Mapping[str, str], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._signatures, self._store, self._host, self._offer = signatures, store, host, offer
        self._membership = signatures.member
        self._options, self._say, self._about = options, say, {**system.facts(), "chip": offer.chip}
        self._nonce, self._home = os.urandom(4).hex(), home
        edges = Edges(partial(preparing.prepare, store, env), say)
        self._runs = RunsHere(signatures, store, host, self._nonce, env, edges)
        self._dask: DaskWorker | None = None
        self._carried: frozenset[str] = frozenset()  # jobs of an earlier connection: Dask does not count them
        self._cordon, self._noted, self._was_connected = "", "", False
        self._troubles: set[str] = set()
        self._card: WorkerCard | None = None
        self._states: dict[str, object] = {}  # of the runs, as in the last card
        self._carded, self._asks_at, self._names_at = -RENEWS, 0.0, 0.0
        clock = system
        self._leases = MachineLeases(store, host, system.boot(), lambda: clock.monotonic() + clock.asleep())
        self._watch = system.MachineWatch()
        self._cordons, self._cards, self._lists = Asking[str](), Asking[None](), Asking[None]()
        self._lists_at = -LISTS_AT_LEAST
        self._has_found = self._has_compared = False
        self._clock_said = False
        self._ends = Asking[None]()
        self._names = Asking[bytes | None]()

    async def run(self) -> None:
        """Work until a signal."""
        loop, ended, cleans_at = asyncio.get_running_loop(), asyncio.Event(), 0.0
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ended.set)
        dask_engine.serve(self._runs)
        has_name, must_leave = await self._has_name(ended), None
        while has_name and not ended.is_set():
            try:
                await self._look()
            except _MustLeave as error:
                has_name, must_leave = False, error
                break
            if self._has_found and loop.time() >= cleans_at:
                cleans_at = loop.time() + CLEANS
                with contextlib.suppress(OSError):  # the next day it is tried again
                    await asyncio.to_thread(remove_unused, self._runs.jobs, self._runs.interpreters)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK)
        ending = f"ending {', '.join(self._runs.jobs)}" if self._runs.jobs else "nothing runs here"
        self._say(f"{self._host} leaves the fleet; {ending}")
        await self._disconnect()
        await self._runs.end()
        if must_leave is not None:
            raise must_leave
        if has_name:
            await self._show(GONE, "its worker was ended")

    async def _has_name(self, ended: asyncio.Event) -> bool:
        """Wait until it is known that no other worker has this name; return False if this one is ended meanwhile.

        Raises StallguardError if another has it.
        """
        loop, first, until = asyncio.get_running_loop(), None, 0.0
        while not ended.is_set():
            try:
                data = await self._names.answered(partial(self._store.read, orders.WorkerCard.place(host=self._host)))
            except StoreError as error:
                self._note(f"the store does not answer ({error}); it is tried again")
            else:
                found = machine_list.name_state(data, first, self._host, self._home, self._signatures)
                if found == machine_list.TAKEN:
                    raise _name_taken(self._host, data, self._signatures)
                if found == machine_list.FREE or (first is not None and loop.time() >= until):
                    return True
                if first is None:
                    first, until = data, loop.time() + WATCHES
                    self._note(
                        f"a worker named {self._host} has been here, of another home or machine; for {WATCHES:.0f} s "
                        "it is watched whether it lives"
                    )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), LOOK)
        return False

    async def _look(self) -> None:
        """Do what the present state of the machine asks for.  Raises _MustLeave."""
        rests = LISTS_AT_LEAST if self._is_connected() else LISTS
        if asyncio.get_running_loop().time() >= self._lists_at + rests:
            await self._take_list()
        if not self._has_found:  # before it takes a job: what runs here takes room
            try:
                await self._runs.find()
            except StoreError as error:
                self._note(f"the store does not answer ({error}); it is tried again")
                return
            self._has_found = True
            self._offer_what_runs_use()
        if publishing.kept(self._store.url):
            with self._telling("written"):
                await self._ends.answered(self._runs.publish_kept)
        closed, now = self._closed(), asyncio.get_running_loop().time()
        # The scheduler disconnects a machine that is cordoned: until then there is nothing to ask.
        if self._is_connected():
            self._asks_at = now
        elif now >= self._asks_at:
            with self._telling("read"):  # else what is known of it still holds
                self._cordon = await self._cordons.answered(self._read_cordon)
                self._asks_at = now + ASKS
        if closed or self._cordon:
            self._runs.give_up()
            self._note(f"{self._host} takes no jobs: {closed or self._cordon}")
            await self._disconnect()
            if closed and self._runs.jobs:
                await self._runs.end()
            await self._show(CLOSED if closed else CORDONED, closed or self._cordon)
        elif await self._connect():
            await self._show(BUSY if self._runs.jobs else READY, "")
        else:
            await self._show(AWAY, f"the scheduler {self._membership.scheduler} does not answer")

    async def _take_list(self) -> None:
        """Take a newer list of revoked members, if there is one, also for what is connected.  Raises _MustLeave."""
        before, self._lists_at = self._signatures.number, asyncio.get_running_loop().time()
        with self._telling("read"):
            await self._lists.answered(partial(_take_list, self._signatures, self._store, self._say_once))
        if self._signatures.number > before and self._dask is not None:
            dask_engine.renew(self._dask.security, self._signatures)
            for name in sorted(dask_engine.drop(self._dask, self._signatures)):
                self._say(f"{name} is revoked: its connections are ended")

    def _is_connected(self) -> bool:
        return self._dask is not None and self._dask.status.name == "running"

    def _closed(self) -> str:
        """Return why this machine takes no jobs at this time, "" if it does."""
        power = power_now(self._watch, time.monotonic()) if self._options.mains_only else None
        return offers.closed(time.time(), self._options.between, power)

    def _read_cordon(self) -> str:
        """Return why this machine is cordoned, "" if it is not.  Raises StoreError."""
        data = self._store.read(orders.Cordon.place(host=self._host))
        if data is None:
            return ""
        found = orders.decode_cordon(data, self._host, self._signatures)
        if found.lifts_itself and not found.is_lifted:  # it had vanished, and is here
            lifted = orders.encode(replace(found, is_lifted=True), self._signatures)
            self._store.replace(orders.Cordon.place(host=self._host), lifted)
            self._say(f"{self._host} is there again; it was cordoned: {found.why}")
            return ""
        return "" if found.is_lifted else f"cordoned: {found.why}"

    async def _connect(self) -> bool:
        """Connect to the scheduler, unless that is so; return whether it is.  Says the first failure of several."""
        if self._dask is not None and self._is_connected():
            left = self._carried & frozenset(self._runs.jobs)
            if left != self._carried:
                self._carried = left
                with contextlib.suppress(OSError):  # the connection was lost: the next look makes another
                    await self._dask.set_resources(**self._rest())
            return True
        await self._disconnect()
        reach = await asyncio.to_thread(member_tls.reach, self._membership, CONNECTS)
        if reach.trouble:
            if reach.lasting:
                await self._take_list()
            if reach.lasting and not self._was_connected:
                raise StallguardError(
                    f"the scheduler {self._membership.scheduler} refuses this machine",
                    why=reach.trouble,
                    cure="stallguard doctor tries the fleet file",
                    code=CANNOT_RUN,
                )
            self._note(f"cannot connect to {self._membership.scheduler} ({reach.trouble}); it is tried again")
            return False
        from distributed import Worker

        self._carried = frozenset(self._runs.jobs)
        worker: DaskWorker | None = None
        try:
            worker = dask_engine.resting(dask_engine.without_http(Worker))(
                self._membership.scheduler, security=dask_engine.security(self._signatures),
                name=worker_name(self._host, self._nonce), nthreads=self._options.slots, memory_limit=0,
                resources=self._rest(), dashboard=False, death_timeout=CONNECTS, protocol="tls",
                local_directory=str(paths.home() / "fleet" / "dask"),
            )  # fmt: skip
            worker.stream_handlers[dask_engine.NOTICE] = self._notified
            await asyncio.wait_for(worker, CONNECTS * 2)
        except Exception as error:  # noqa: BLE001 - Dask, tornado and TLS raise many kinds: it is not connected
            self._note(f"cannot connect to {self._membership.scheduler} ({_reason(error)}); it is tried again")
            if worker is not None:
                await _closed(worker)
            return False
        self._dask, self._was_connected = worker, True
        offered = ", ".join(f"{name}={amount:g}" for name, amount in sorted(self._offer.resources.items()))
        self._note(f"{self._host} is connected to {self._membership.scheduler} and offers {offered}")
        if not self._has_compared:
            self._has_compared = True
            await asyncio.to_thread(self._compare)
        return True

    def _notified(self, job: str) -> None:
        """Look at the order to stop a job, or at the list of revoked members: the scheduler has seen something new."""
        if job:
            self._leases.ask(job)
        else:
            self._lists_at = -LISTS_AT_LEAST

    def _rest(self) -> dict[str, float]:
        """Return what is offered less what the runs take that Dask does not count."""
        taken = self._runs.taken(self._carried)
        return {name: max(0.0, amount - taken.get(name, 0.0)) for name, amount in self._offer.resources.items()}

    def _offer_what_runs_use(self) -> None:
        """Offer the memory too that the runs which were found use: it is not that of other programs."""
        needed = self._runs.taken(self._runs.jobs).get("memory", 0.0)
        room = offers.usable(system.memory(), round(needed * offers.GB))
        if self._options.memory is None and needed and room is not None:
            resources = self._offer.resources | {"memory": offers.gigabytes(room)}
            self._offer = self._offer._replace(resources=resources)

    async def _disconnect(self) -> None:
        worker, self._dask = self._dask, None
        if worker is not None:
            await _closed(worker)

    async def _show(self, state: str, why: str) -> None:
        """Write the card of this machine if it has changed, or once a minute.

        Raises StallguardError if a worker elsewhere has written it since.
        """
        loop = asyncio.get_running_loop()
        card = WorkerCard(
            schema=orders.SCHEMA, host=self._host, at="", state=state, why=why,
            address=self._dask.address if self._dask else "", worker=self._nonce,
            resources=self._offer.resources, jobs=self._runs.jobs, versions=self._offer.versions, about=self._about,
            home=self._home, clock=self._clock(),
        )  # fmt: skip
        alive = self._leases.alive() if state != GONE else {}
        renews, statuses = machine_beat.period(alive, RENEWS), self._leases.statuses(alive)
        states = {name: one.status.get("state") for name, one in statuses.items()}
        if states != self._states:
            renews = min(renews, RENEWS_IF_NEWS)
        if card == self._card and loop.time() < self._carded + renews and self._leases.is_for(alive):
            return
        data = orders.encode(replace(card, at=run_files.utc(), statuses=statuses), self._signatures)
        key = orders.WorkerCard.place(host=self._host)
        # The first card is written without: `_has_name` has just looked.
        reads, is_notified = self._card is not None and loop.time() >= self._names_at, self._is_connected()

        def renew() -> None:
            now = self._store.read(key) if reads else None
            with contextlib.suppress(Damaged):
                card = orders.decode_card(now, self._host, self._signatures) if now is not None else None
                if card is not None and card.state != GONE and card.home not in ("", self._home):
                    raise _name_taken(self._host, now, self._signatures)
            self._leases.write(data, alive, is_notified=is_notified)

        with self._telling("written"):  # the next look tries again
            began = loop.time()
            await self._cards.answered(renew)
            if reads or self._card is None:
                self._names_at = began + NAMES
            self._card, self._carded, self._states = card, began, states

    def _clock(self) -> float | None:
        """Return the seconds, in whole minutes, that this machine's clock is ahead of the scheduler's."""
        if self._dask is None:
            return self._card.clock if self._card is not None else None
        ahead = -float(self._dask.scheduler_delay)
        shown = 0.0 if abs(ahead) < CLOCK_OFF else round(ahead / 60) * 60.0
        if shown and not self._clock_said:
            self._clock_said = True
            way = "ahead of" if shown > 0 else "behind"
            self._say(
                f"the clock of this machine is {duration(abs(shown))} {way} the scheduler's; its hours and the times "
                "that it shows follow it, nothing else does"
            )
        return shown

    @contextlib.contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Say the first of several errors of the store, and the end of them.  `what`: it could not be."""
        try:
            yield
        except StoreError as error:
            if what not in self._troubles:
                self._say(f"the store cannot be {what} ({error}); it is tried again")
            self._troubles.add(what)
        else:
            if what in self._troubles:
                self._say(f"the store can be {what} again")
            self._troubles.discard(what)

    def _compare(self) -> None:
        """Say which versions other machines have."""
        with contextlib.suppress(StoreError):  # `fleet machines` says it too
            others = machine_list.versions(
                self._store, self._signatures,
                machine_list.read(self._store, self._signatures, dt.datetime.now(dt.UTC), COMPARED),
            )  # fmt: skip
            for line in machine_list.differences(others | {self._host: self._offer.versions}):
                if self._host in line:
                    self._say(f"versions differ: {line}")

    def _say_once(self, text: str) -> None:
        """Say what is not to be repeated with each look."""
        if text not in self._troubles:
            self._troubles.add(text)
            self._say(text)

    def _note(self, text: str) -> None:
        """Say a line, once while it stays the same."""
        if text != self._noted:
            self._noted = text
            self._say(text)


class _MustLeave(StallguardError):
    """Why the machine cannot be one of the fleet: another worker has its name now, or it is revoked."""


def _take_list(signatures: Signatures, store: Store, say: Callable[[str], None]) -> None:
    """Take a newer list of revoked members, if there is one.

    Raises StoreError, _MustLeave if this machine is in it.
    """
    trouble, name = signatures.refresh(store), signatures.member.name
    if trouble:
        say(trouble)
    if signatures.is_void:
        raise _MustLeave(
            f"member {name} is revoked",
            why="the list of the fleet's authority has the certificate of this machine's fleet file",
            cure=f"if it belongs to the fleet again: stallguard fleet invite {name}, and move that file here",
            code=CANNOT_RUN,
        )


def _name_taken(host: str, data: bytes | None, signatures: Signatures) -> _MustLeave:
    about = ""
    with contextlib.suppress(Damaged):
        card = orders.decode_card(data or b"", host, signatures)
        about = f", with the address {card.address}" if card.address else ""
    return _MustLeave(
        f"another worker has the name {host}{about}",
        why="two machines of one name would share a card, a cordon and refusals",
        cure="stallguard fleet worker --name OTHER gives this one a name of its own",
        code=CANNOT_RUN,
    )


async def _closed(worker: DaskWorker) -> None:
    """Close a connection; its runs go on.  One that does not close in time is left."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(worker.close(timeout=1, executor_wait=False), CLOSES)


def _reason(error: BaseException) -> str:
    """Return the innermost cause, in a line: Dask wraps the error that says why."""
    while error.__cause__ is not None or error.__context__ is not None:
        inner = error.__cause__ or error.__context__
        assert inner is not None  # noqa: S101 - the loop's condition
        error = inner
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def remove_unused(jobs: Collection[str], interpreters: Collection[str]) -> None:
    """Remove what is not used.  `jobs`, `interpreters`: of the runs of this machine.  Raises OSError."""
    now = time.time()
    busy = {runs_here.log_of(job) for job in jobs}
    for log in _older(runs_here.logs(), now - OLD_LOGS):
        if log not in busy:
            log.unlink(missing_ok=True)
            runs_here.lock_of(log.stem).unlink(missing_ok=True)
    for left in _older(paths.home() / "fetched", now - OLD_FETCHED):
        shutil.rmtree(left, ignore_errors=True)
    unpacking.remove_unused(jobs)
    preparing.remove_unused(interpreters)


def _older(folder: Path, than: float) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.stat().st_mtime < than]


def machine_facts(env: Mapping[str, str], cwd: Path, python: str | None = None) -> OfferedMachine:
    """Return what this machine has, within about a second on a Mac.

    `python`: of the environment; None: that which `stallguard run` would choose in `cwd`.  Raises StallguardError if
    there is no such interpreter.
    """
    choice = choose_interpreter(python, env, shutil.which, cwd=cwd)
    return OfferedMachine(
        about=system.facts(), memory=system.memory(), gpus=system.preferences().gpus, cards=system.cuda_cards(),
        installed=interrogate.environment(choice, deep=False).installed,
    )  # fmt: skip


def power_now(watch: system.MachineWatch, now: float) -> Power:
    """Return what feeds the machine.  `now`: monotonic seconds."""
    return Power(watch.read(now, (), system.asleep()).power, system.has_battery())

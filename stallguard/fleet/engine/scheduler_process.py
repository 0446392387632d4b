"""`stallguard fleet scheduler`: a scheduler of Dask, and beside it the dispatcher, which reads the jobs from the store.

It can be ended and started at any time: machines connect again by themselves, trainings go on meanwhile, and the jobs
are in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.engine import dask_engine
from stallguard.fleet.engine.dispatcher import Deps, Dispatcher
from stallguard.fleet.jobs import held_run
from stallguard.fleet.store import Store, StoreError, opening, orders
from stallguard.fleet.store.membership import Membership
from stallguard.fleet.store.orders import SchedulerCard
from stallguard.fleet.store.signing import Signatures
from stallguard.host import system
from stallguard.storage import paths, run_files
from stallguard.worker import Worker

TURN = 1.0  # s between two turns of the dispatcher
AWAY = 5.0  # s, the same while the store does not answer
LISTS = 10.0  # s between two looks at the list of revoked members
GONE = "30s"  # without an answer of a machine until Dask gives its place to others; the lease decides about its job
CLOSES = 5.0  # s
ANY = ("0.0.0.0", "[::]", "::")  # noqa: S104 - TLS asks each client for a certificate of the fleet


def serve(membership: Membership, listen: str, say: Callable[[str], None], *, dashboard: bool = False) -> None:
    """Serve until SIGINT or SIGTERM.  `listen`: "HOST:PORT"; `dashboard`: that of Dask too, on 127.0.0.1.

    Raises StallguardError.
    """
    signatures = Signatures(membership)
    dask_engine.security(signatures)  # raises if the extra is missing, or the certificates are no good
    import dask

    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is said in our words

    store = opening.open_fleet_store(membership)
    own = {"distributed.scheduler.allowed-failures": 0, "distributed.scheduler.worker-ttl": GONE}
    safe = dask_engine.dask_settings(membership, paths.home() / "fleet" / "dask", dashboard=dashboard)
    with dask.config.set({**safe, **dask_engine.SETTINGS, **own}):
        asyncio.run(_serve(signatures, store, listen, say, dashboard=dashboard))


async def _serve(
    signatures: Signatures, store: Store, listen: str, say: Callable[[str], None], *, dashboard: bool
) -> None:
    from distributed import Client, Scheduler

    from stallguard.fleet.engine.dask_engine import DaskEngine

    host, _, port = listen.rpartition(":")
    membership, own = signatures.member, dask_engine.security(signatures)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    try:
        kind = dask_engine.of_members(Scheduler)
        scheduler = await (kind if dashboard else dask_engine.without_http(kind))(
            host=f"tls://{host}", port=int(port), protocol="tls", security=own, dashboard=dashboard,
            dashboard_address=dask_engine.DASHBOARD if dashboard else None, contact_address=membership.scheduler,
        )  # fmt: skip
    # Dask raises a RuntimeError that names no reason, and has the reason as its cause.
    except (OSError, ValueError, RuntimeError) as error:
        raise StallguardError(
            f"the scheduler cannot listen at {host}:{port}", why=str(error.__cause__ or error),
            cure="another scheduler of this fleet runs here, or choose: --listen HOST:PORT", code=CANNOT_RUN,
        ) from error  # fmt: skip
    async with scheduler:
        say(f"the scheduler of {membership.fleet} listens at {host}:{port}; machines connect to {membership.scheduler}")
        inside = f"tls://127.0.0.1:{port}" if host in ANY else f"tls://{host}:{port}"
        client = await asyncio.to_thread(Client, inside, security=own, set_as_default=False)
        engine = DaskEngine(scheduler, loop, client)
        dispatcher = Dispatcher(store, signatures, engine, Deps(_now(), run_files.utc, say))
        stopping, failed = threading.Event(), list[Exception]()

        def drop() -> None:
            for name in sorted(dask_engine.drop(scheduler, signatures)):
                say(f"{name} is revoked: its connections are ended")
            engine.notify_all()

        def take_list() -> None:
            """Take a newer list of revoked members, if there is one."""
            before = signatures.number
            if trouble := signatures.refresh(store):
                dispatcher.say_once(trouble)
            if signatures.number > before:
                dask_engine.renew(own, signatures)
                loop.call_soon_threadsafe(drop)

        def dispatch() -> None:
            try:
                _write_card(store, signatures, dashboard, say)  # here: a store that hangs holds up no signal
                _turn_until(stopping, dispatcher, take_list, say)
            except Exception as error:  # noqa: BLE001 - raised below: a scheduler without a dispatcher starts nothing
                failed.append(error)
                loop.call_soon_threadsafe(ended.set)

        worker = Worker(dispatch, "dispatcher")
        worker.start()
        await ended.wait()
        say("the scheduler ends; trainings go on, and the next scheduler finds them")
        stopping.set()
        await asyncio.to_thread(worker.join, CLOSES)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(client.close, CLOSES), CLOSES)
    if failed:
        raise failed[0]


def _write_card(store: Store, signatures: Signatures, dashboard: bool, say: Callable[[str], None]) -> None:
    """Write where the scheduler is, and its page, for the page of the fleet."""
    page = f"https://{dask_engine.DASHBOARD}/status" if dashboard else ""
    card = SchedulerCard(
        schema=orders.SCHEMA, host=held_run.machine_name(os.environ), at=run_files.utc(),
        address=signatures.member.scheduler, dashboard=page, versions=dask_engine.versions(),
    )  # fmt: skip
    try:
        store.replace(orders.SCHEDULER, orders.encode(card, signatures))
    except StoreError as error:  # the jobs are read from it all the same
        say(f"the store cannot be written ({error}); machines cannot publish what they train")


def _now() -> Callable[[], float]:
    clock = system
    return lambda: clock.monotonic() + clock.asleep()


def _turn_until(
    stopping: threading.Event, dispatcher: Dispatcher, take_list: Callable[[], None], say: Callable[[str], None]
) -> None:
    is_away, looks_at = False, 0.0
    while not stopping.is_set():
        try:
            if time.monotonic() >= looks_at:
                take_list()
                looks_at = time.monotonic() + LISTS
            dispatcher.turn()
        except StoreError as error:
            if not is_away:
                say(f"the store does not answer ({error}); it is tried again every {AWAY:.0f} s")
            is_away = True
        else:
            if is_away:
                say("the store answers again")
            is_away = False
        stopping.wait(AWAY if is_away else TURN)

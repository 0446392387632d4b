"""`stallguard fleet job NAME`: trains one job of the fleet on this machine, for engines that start commands.

It is what a worker of ours does with a job, without the worker: `ray job submit -- stallguard fleet job NAME`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial

from stallguard.errors import CANNOT_RUN, NO_SUCH_RUN, STOPPED_ON_TIME, StallguardError
from stallguard.fleet import orders, store_owner
from stallguard.fleet.membership import Membership, own_host
from stallguard.fleet.records import Damaged
from stallguard.fleet.signing import Signatures
from stallguard.fleet.store import Store, StoreError, unusable
from stallguard.pool import preparing
from stallguard.pool.environments import EnvironmentImpossible
from stallguard.pool.runs_here import Edges, NotBegun, RunsHere
from stallguard.storage import run_files
from stallguard.supervisor import fleet_run


def train(membership: Membership, job: str, env: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Train a job to its end; return the exit code of its run.  SIGINT and SIGTERM end it with a checkpoint.

    Raises StallguardError: exit code 3 if there is no such job, 75 if this machine must not take it now, 126 if it
    cannot begin here.
    """
    store = store_owner.opened(membership)
    host, signatures = own_host(membership.name, fleet_run.machine_name(env)), Signatures(membership)
    try:
        if trouble := signatures.refresh(store):
            say(trouble)
        _refuse(store, signatures, job, host)
        edges = Edges(partial(preparing.prepare, store, env), run_files.utc, say)
        runs = RunsHere(signatures, store, host, os.urandom(4).hex(), env, edges)
        return asyncio.run(_train(runs, job))
    except NotBegun as error:
        raise StallguardError(
            f"job {job} was ended before it began", why=str(error), code=STOPPED_ON_TIME
        ) from error
    except (EnvironmentImpossible, Damaged, OSError) as error:
        raise StallguardError(
            f"job {job} cannot begin on {host}",
            why=str(error),
            cure=f"stallguard status {job} shows how it stands; or submit it again under another name",
            code=CANNOT_RUN,
        ) from error
    except StoreError as error:
        raise unusable(membership.store, error) from error


async def _train(runs: RunsHere, job: str) -> int:
    loop = asyncio.get_running_loop()
    ends: set[asyncio.Task[None]] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: ends.add(asyncio.ensure_future(runs.end())))
    return await runs.train(job, "")


def _refuse(store: Store, signatures: Signatures, job: str, host: str) -> None:
    data = store.read(orders.submission_key(job)) if orders.JOB_NAME.fullmatch(job) else None
    if data is None:
        raise StallguardError(
            f"there is no job {job} in {store.url}",
            cure=f"submit it first: stallguard fleet submit --name {job} train.py",
            code=NO_SUCH_RUN,
        )
    orders.decode_submission(data, signatures, job)
    cordon = store.read(orders.cordon_key(host))
    found = orders.decode_cordon(cordon, host, signatures) if cordon is not None else None
    if found is not None and not found.is_lifted and not found.lifts_itself:
        raise StallguardError(
            f"machine {host} takes no jobs",
            why=f"it is cordoned: {found.why}",
            cure=f"when it is mended: stallguard fleet uncordon {host}",
            code=STOPPED_ON_TIME,
        )

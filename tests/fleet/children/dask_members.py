"""A scheduler of a fleet, and workers of two other members while members are revoked: prints what each saw.

Arguments: the folder for Dask, the fleet files of the two, a list in which the first is revoked, and one in which the
member of the scheduler is too, which the second alone sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from pathlib import Path

import dask
from distributed import Scheduler, Worker

from stallguard.fleet.engine.dask_engine import dask_settings, drop, of_members, renew, security, without_http
from stallguard.fleet.store import membership
from stallguard.fleet.store.opening import open_store
from stallguard.fleet.store.signing import REVOKED, Signatures

TRIES = (5, 15, 30)  # s: on a busy machine the first try can take longer


async def main() -> None:
    folder, lost, other, later, last = map(Path, sys.argv[1:])
    mine, lost, other = (
        Signatures(membership.required({"STALLGUARD_FLEET": str(file)}))
        for file in (membership.path(os.environ), lost, other)
    )
    own, store, said = security(mine), open_store(mine.member.store), {}
    with dask.config.set(dask_settings(mine.member, folder)):
        kind = without_http(of_members(Scheduler))
        async with kind(host="127.0.0.1", port=0, security=own, dashboard=False) as scheduler:

            def worker(name, by=lost):
                return without_http(Worker)(
                    scheduler.address, security=security(by), host="127.0.0.1", name=name, nthreads=1,
                    local_directory=str(folder), death_timeout=TRIES[-1],
                )  # fmt: skip

            def connected():
                return sorted(str(each.name) for each in scheduler.workers.values())

            said["stolen name"] = await refused("does not belong", worker, f"{mine.member.name}#1")
            first, second = await worker("mini.a#1"), await worker("pro#1", other)
            said["before"] = connected()
            store.replace(REVOKED, later.read_bytes())
            said["trouble"] = mine.refresh(store)
            renew(own, mine)
            said["dropped"] = sorted(drop(scheduler, mine))
            await until(lambda: len(connected()) < 2)
            said["after"] = connected()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(first.close(), 5)
            said["again"] = await refused("revoked", worker, "mini.a#2")
            store.replace(REVOKED, last.read_bytes())
            other.refresh(store)
            renew(second.security, other)
            said["dropped by the worker"] = sorted(drop(second, other))
            await until(lambda: not connected())
            said["last"] = connected()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(second.close(), 5)
    print(json.dumps(said), flush=True)


async def until(condition) -> None:
    for _ in range(TRIES[-1] * 10):
        if condition():
            break
        await asyncio.sleep(0.1)


async def refused(text, make, name) -> str:
    """Return why a worker is not taken: `text` is expected in it."""
    texts = []
    for seconds in TRIES:
        worker = make(name)
        try:
            await asyncio.wait_for(worker, seconds)
        except Exception as error:
            while error is not None:
                texts.append(f"{type(error).__name__}: {error}")
                error = error.__cause__ or error.__context__
        finally:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(worker.close(), 5)
        if text in " ".join(texts).lower():
            break
    return " | ".join(texts)


logging.disable(logging.WARNING)
if __name__ == "__main__":
    asyncio.run(main())

"""A scheduler and a worker of a fleet in one process: prints where it listens, and ends with its input.

Arguments: the folder for Dask, and the words "dashboard" (the scheduler has its HTTP port), "plain" (servers of Dask
as they are), "stranger" (a worker with the certificates of the fleet file STRANGER, tried and reported) or "closed"
(none can connect to the worker's port: it computes, and is ended by the engine).
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
import psutil
from distributed import Client, Scheduler, Worker, wait

from stallguard.fleet.engine.dask_engine import DASHBOARD, DaskEngine, dask_settings, security, without_http
from stallguard.fleet.store import membership
from stallguard.fleet.store.signing import Signatures


async def main() -> None:
    member, folder, words = membership.required(os.environ), Path(sys.argv[1]), sys.argv[2:]
    dashboard = "dashboard" in words
    own = security(Signatures(member))
    wrap = (lambda kind: kind) if "plain" in words else without_http
    with dask.config.set(dask_settings(member, folder, dashboard=dashboard)):
        kind = Scheduler if dashboard else wrap(Scheduler)
        address = DASHBOARD.rpartition(":")[0] + ":0" if dashboard else None
        async with kind(
            host="127.0.0.1", port=0, security=own, dashboard_address=address, dashboard=False
        ) as scheduler:
            place = {"local_directory": str(folder), "nthreads": 1}
            if "closed" in words:  # of this address the scheduler learns, and none listens there
                place |= {"contact_address": "tls://127.0.0.1:1"}
            async with wrap(Worker)(scheduler.address, security=own, host="127.0.0.1", **place) as worker:
                said = {"scheduler": scheduler.address}
                if "stranger" in words:
                    said["refused"] = await refused(scheduler.address, place)
                async with Client(scheduler.address, security=own, asynchronous=True) as client:
                    if "closed" not in words:  # a result is fetched at that port: the engine fetches none
                        said["sum"] = await client.submit(sum, [1, 2])
                    said["ports"] = [
                        [one.laddr.ip, one.laddr.port]
                        for one in psutil.Process().net_connections("tcp")
                        if one.status == psutil.CONN_LISTEN
                    ]
                    if "closed" in words:
                        engine = DaskEngine(scheduler, asyncio.get_running_loop(), client)
                        said["machines"] = len(await asyncio.to_thread(engine.machines))
                        both = [client.submit(sum, [1, 2]), client.submit(int, "no number")]
                        await wait(both)
                        said["states"] = [one.status for one in both]
                        said["error"] = str(await both[1].exception())
                        engine.retire(worker.address)
                        await asyncio.wait_for(worker.finished(), 30)
                        said["left"] = len(await asyncio.to_thread(engine.machines))
                print(json.dumps(said), flush=True)
                await asyncio.to_thread(sys.stdin.read)


async def refused(address, place) -> str:
    """Return why a worker of another fleet is refused: it goes on trying, so it is ended after some tries."""
    found = ""
    for seconds in (5, 15, 30):  # on a busy machine the first try can take longer
        other = membership.recall({"STALLGUARD_FLEET": os.environ["STRANGER"]})
        worker = without_http(Worker)(address, security=security(Signatures(other)), host="127.0.0.1", **place)
        texts = []
        try:
            await asyncio.wait_for(worker, seconds)
        except Exception as error:
            while error is not None:
                texts.append(f"{type(error).__name__}: {error}")
                error = error.__cause__ or error.__context__
        finally:
            with contextlib.suppress(Exception):
                await worker.close()
        found = " | ".join(texts)
        if "certificate" in found.lower():
            break
    return found


logging.disable(logging.WARNING)
if __name__ == "__main__":
    asyncio.run(main())

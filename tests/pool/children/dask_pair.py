"""A scheduler and a worker of a fleet in one process: prints where it listens, and ends with its input.

Arguments: the folder for Dask, and the words "dashboard" (the scheduler has its HTTP port), "plain" (servers of Dask
as they are) or "stranger" (a worker with the certificates of the fleet file STRANGER, tried and reported).
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
from distributed import Client, Scheduler, Worker

from stallguard.fleet import membership
from stallguard.pool.security import DASHBOARD, dask_settings, security, without_http


async def main() -> None:
    member, folder, words = membership.required(os.environ), Path(sys.argv[1]), sys.argv[2:]
    dashboard = "dashboard" in words
    own = security(member)
    wrap = (lambda kind: kind) if "plain" in words else without_http
    with dask.config.set(dask_settings(member, folder, dashboard=dashboard)):
        kind = Scheduler if dashboard else wrap(Scheduler)
        address = DASHBOARD.rpartition(":")[0] + ":0" if dashboard else None
        async with kind(
            host="127.0.0.1", port=0, security=own, dashboard_address=address, dashboard=False
        ) as scheduler:
            place = {"local_directory": str(folder), "nthreads": 1}
            async with wrap(Worker)(scheduler.address, security=own, host="127.0.0.1", **place):
                said = {"scheduler": scheduler.address}
                if "stranger" in words:
                    said["refused"] = await refused(scheduler.address, place)
                async with Client(scheduler.address, security=own, asynchronous=True) as client:
                    said["sum"] = await client.submit(sum, [1, 2])
                    said["ports"] = [
                        [one.laddr.ip, one.laddr.port]
                        for one in psutil.Process().net_connections("tcp")
                        if one.status == psutil.CONN_LISTEN
                    ]
                print(json.dumps(said), flush=True)
                await asyncio.to_thread(sys.stdin.read)


async def refused(address, place) -> str:
    """Return why a worker of another fleet is refused: it goes on trying, so it is ended after some tries."""
    found = ""
    for seconds in (5, 15, 30):  # on a busy machine the first try can take longer
        other = membership.recall({"STALLGUARD_FLEET": os.environ["STRANGER"]})
        worker = without_http(Worker)(address, security=security(other), host="127.0.0.1", **place)
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

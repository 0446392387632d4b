"""Dask distributed as the engine: its scheduler brings starts to machines, and notices lost workers.

The engine runs in the scheduler's own process, beside its event loop; the dispatcher calls it from another thread.
What Dask does by itself when a worker is lost (running the task again at once) is switched off: the lease decides when
a job can start again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

from stallguard.pool import dask_task
from stallguard.pool.dispatch import ConnectedMachine
from stallguard.pool.engine import UNKNOWN, Placed, Start
from stallguard.pool.security import SEPARATOR

if TYPE_CHECKING:
    from distributed import Client, Future, Scheduler

RETIRES = 5.0  # s that a machine has to answer before it is removed without an answer


def worker_name(host: str, worker: str) -> str:
    """Return the name under which a worker connects."""
    return f"{host}{SEPARATOR}{worker}"


class DaskEngine:
    """Implements engine.Engine.  `loop`: the scheduler's; `client`: a client of it with a loop of its own."""

    def __init__(self, scheduler: Scheduler, loop: asyncio.AbstractEventLoop, client: Client) -> None:
        """All of them run in this process."""
        self._scheduler, self._loop, self._client = scheduler, loop, client
        self._futures: dict[str, Future] = {}
        self._retired: set[str] = set()
        self._nonce = os.urandom(
            4
        ).hex()  # a scheduler that started again must not meet keys of the one before

    def machines(self) -> list[ConnectedMachine]:
        """See engine.Engine."""
        return asyncio.run_coroutine_threadsafe(self._machines(), self._loop).result()

    async def _machines(self) -> list[ConnectedMachine]:
        """In the loop, which alone changes the scheduler's sorted dictionary: an iteration beside it can fail."""
        found = []
        self._retired &= set(self._scheduler.workers)
        for worker in self._scheduler.workers.values():
            host, _, name = str(worker.name).partition(SEPARATOR)
            if worker.status.name == "running" and worker.address not in self._retired:
                found.append(ConnectedMachine(host, name, worker.address, dict(worker.resources)))
        return found

    def start(self, start: Start) -> None:
        """See engine.Engine."""
        self._futures[start.job] = self._client.submit(
            dask_task.train, start.job, start.quiet, key=f"{start.job}-{start.attempt}-{self._nonce}", pure=False,
            retries=0, resources=dict(start.needs), workers=[start.address],
            allow_other_workers=False,
        )  # fmt: skip

    def placed(self, job: str) -> Placed:
        """See engine.Engine."""
        future = self._futures.get(job)
        if future is None:
            return Placed(True, UNKNOWN)
        if future.status == "pending":
            return Placed(False, is_begun=self._is_begun(future.key))
        failure = ""
        if future.status != "finished":
            error = future.exception(timeout=1) if future.status == "error" else None
            failure = f"{type(error).__name__}: {error}" if error is not None else UNKNOWN
            if type(error).__name__ == "KilledWorker":
                failure = "the connection to its machine was lost"
        del self._futures[job]
        return Placed(True, failure)

    def _is_begun(self, key: Any) -> bool:
        """Return whether a worker said that it works on it: what waits there for resources has a worker too."""
        task = self._scheduler.tasks.get(key)
        worker = task.processing_on if task is not None else None
        return worker is not None and task in worker.executing

    def forget(self, job: str) -> None:
        """See engine.Engine."""
        future = self._futures.pop(job, None)
        if future is not None:
            future.cancel(asynchronous=False)

    def notify(self, address: str, job: str) -> None:
        """See engine.Engine."""
        self._loop.call_soon_threadsafe(self._send, address, job)

    def notify_all(self) -> None:
        """Have all machines look at the list of revoked members; called in the loop."""
        for address in list(self._scheduler.stream_comms):
            self._send(address, "")

    def _send(self, address: str, job: str) -> None:
        """Send by the connection that the worker opened: none to it has to be let through."""
        from distributed.comm import CommClosedError

        stream = self._scheduler.stream_comms.get(address)
        if stream is not None:
            with contextlib.suppress(CommClosedError):  # it asks the store itself while it is not connected
                stream.send({"op": dask_task.NOTICE, "job": job})

    def retire(self, address: str) -> None:
        """See engine.Engine."""
        if address not in self._retired:
            self._retired.add(address)
            asyncio.run_coroutine_threadsafe(self._retire(address), self._loop)

    async def _retire(self, address: str) -> None:
        doing: Any = self._scheduler.retire_workers(workers=[address], close_workers=True, remove=True)
        with contextlib.suppress(Exception):  # one that does not answer is removed without
            await asyncio.wait_for(doing, RETIRES)
        if address in self._scheduler.workers:
            await self._scheduler.remove_worker(address, stimulus_id="stallguard-cordon", close=True)

"""What the dispatcher's thread reads of Dask's scheduler while its loop changes it."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

sortedcontainers = pytest.importorskip("sortedcontainers")
from stallguard.fleet.engine import dask_engine  # noqa: E402
from stallguard.fleet.engine.dask_engine import DaskEngine, worker_name  # noqa: E402


@pytest.mark.costly
def test_machines_can_be_read_while_they_come_and_go():
    def worker(number):
        return SimpleNamespace(
            name=worker_name(f"mac{number}", "w"), address=f"tls://{number}", resources={"slots": 1},
            status=SimpleNamespace(name="running"),
        )  # fmt: skip

    workers = sortedcontainers.SortedDict({f"tls://{number}": worker(number) for number in range(6)})
    loop, is_over = asyncio.new_event_loop(), threading.Event()

    async def come_and_go():
        while not is_over.is_set():
            for _ in range(200):
                workers["tls://3"] = workers.pop("tls://3")
            await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: loop.run_until_complete(come_and_go()))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        engine = DaskEngine(SimpleNamespace(workers=workers), loop, client=None)
        for _ in range(300):
            assert len(engine.machines()) == 6
    finally:
        is_over.set()
        sys.setswitchinterval(interval)
        thread.join()
        loop.close()


def test_a_machine_is_told_by_the_connection_that_it_opened(tmp_path):
    dask, distributed, notified = pytest.importorskip("dask"), pytest.importorskip("distributed"), []

    async def steps():
        is_notified = asyncio.Event()

        def note(job):
            notified.append(job)
            if len(notified) == 2:
                is_notified.set()

        hub = dask_engine.without_http(distributed.Scheduler)(host="127.0.0.1", port=0, dashboard=False)
        async with hub as scheduler:
            worker = dask_engine.without_http(distributed.Worker)(
                scheduler.address, host="127.0.0.1", nthreads=1, memory_limit=0, dashboard=False
            )  # fmt: skip
            worker.stream_handlers[dask_engine.NOTICE] = note
            async with worker:
                engine = DaskEngine(scheduler, asyncio.get_running_loop(), client=None)
                engine.notify("tcp://127.0.0.1:1", "lost")  # one that is not connected
                engine.notify(worker.address, "count")
                await asyncio.sleep(0)
                engine.notify_all()
                await is_notified.wait()

    with dask.config.set(temporary_directory=str(tmp_path)):
        asyncio.run(asyncio.wait_for(steps(), 60))
    assert notified == ["count", ""]

"""What the dispatcher's thread reads of Dask's scheduler while its loop changes it."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import SimpleNamespace

import pytest

sortedcontainers = pytest.importorskip("sortedcontainers")
from stallguard.pool.dask_engine import DaskEngine, worker_name  # noqa: E402


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

"""How often Dask's processes of a fleet wake up by themselves while there is nothing to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("distributed")
COUNT = """
import asyncio, sys
import dask
from distributed import Scheduler, Worker
from stallguard.fleet.engine import dask_engine

async def wakes():
    async with Scheduler(host="tcp://127.0.0.1", port=0, dashboard=False, dashboard_address=None) as scheduler:
        kind = dask_engine.resting(Worker)
        async with kind(scheduler.address, nthreads=1, memory_limit=0, dashboard=False) as worker:
            await worker.heartbeat()
            await worker.heartbeat()  # of the first the scheduler's answer set the time of the second
            for server in (worker, scheduler):
                calls = server.periodic_callbacks.values()
                print(sum(1000 / one.callback_time for one in calls))

with dask.config.set({**dask_engine.SETTINGS, "temporary-directory": sys.argv[1]}):
    asyncio.run(wakes())
"""


@pytest.mark.costly
def test_a_worker_and_a_scheduler_that_wait_wake_up_seldom(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", COUNT, str(tmp_path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    worker, scheduler = map(float, done.stdout.split())
    assert worker < 2.0  # 157 with Dask's own settings
    assert scheduler < 12.0


LOADS = """
import sys
from stallguard.fleet.engine import dask_engine
dask_engine.load_quietly()
assert "distributed" in sys.modules
print("numpy" in sys.modules)
import numpy
print(numpy.ones(2).sum())
"""


@pytest.mark.costly
def test_dask_is_loaded_without_numpy_and_a_later_import_finds_it():
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-c", LOADS], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "2.0"]

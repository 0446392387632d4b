"""The loop of a worker with a store that stops answering."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.folder_store import FolderStore
from stallguard.pool import beside_loop, worker_process
from stallguard.pool.offers import Offer
from stallguard.pool.worker_options import WorkerOptions

pytest.importorskip("distributed")
PATIENCE = 60.0


class Hanging(FolderStore):
    """A share that is mounted hard, and whose server is away: its requests come back after it is there again."""

    def __init__(self, folder):
        super().__init__(folder)
        self.is_back, self.asked = threading.Event(), threading.Event()

    def read(self, key):
        self.asked.set()
        self.is_back.wait(PATIENCE)
        return super().read(key)

    def replace(self, key, data):
        self.is_back.wait(PATIENCE)
        super().replace(key, data)


def test_a_worker_obeys_signals_while_its_store_hangs(home, found, tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(home / "state"))
    monkeypatch.setattr(beside_loop.answered, "__defaults__", (0.1,))
    monkeypatch.setattr(beside_loop.Asking.answered, "__defaults__", (0.1,))
    member, store, said = found(), Hanging(tmp_path / "store"), []
    options = WorkerOptions(host="mac", slots=1, memory=None, between=None, mains_only=False)
    worker = worker_process._WorkerProcess(
        member, store, "mac", Offer({"slots": 1}, {}, ""), options, dict(os.environ), said.append
    )

    async def steps():
        running = asyncio.ensure_future(worker.run())
        await asyncio.to_thread(store.asked.wait, PATIENCE)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, PATIENCE / 2)

    try:
        asyncio.run(steps())
    finally:
        store.is_back.set()
    assert any("leaves the fleet" in line for line in said)


def test_a_second_worker_of_one_home_is_refused_and_one_can_start_after_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    (tmp_path / "fleet").mkdir()
    with (
        worker_process._only_worker(),
        pytest.raises(StallguardError, match="already") as raised,
        worker_process._only_worker(),
    ):
        pass
    assert raised.value.code == CANNOT_RUN
    with worker_process._only_worker():
        pass

"""Evidence that is asked for many times at once is gathered once."""

from __future__ import annotations

import queue
import threading
from types import SimpleNamespace
from typing import Any

from stallguard.collectors import evidence_bundle
from stallguard.core.actions import Collect
from stallguard.core.events import DUMP, Collected
from stallguard.supervisor.guard import EvidenceCollector

LONG = 30.0  # seconds; only a broken test waits that long


def test_one_dump_at_a_time_and_another_when_it_is_over(monkeypatch) -> None:
    posted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    context: Any = SimpleNamespace(
        mailbox=SimpleNamespace(post=posted.put),
        clock=SimpleNamespace(monotonic=lambda: 1.0),
        reporter=SimpleNamespace(trouble=print),
    )
    launcher: Any = None
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def collect(_context: object) -> Collected:
        begun.release()
        assert go_on.acquire(timeout=LONG)
        return Collected(at=1.0, incident=DUMP, seconds=0.0)

    monkeypatch.setattr(evidence_bundle, "collect", collect)
    monkeypatch.setattr(EvidenceCollector, "_bundle_context", lambda *_: None)
    collector: Any = EvidenceCollector(context, launcher)
    dump: Any = Collect(incident=DUMP, attempt=1)
    for _ in range(200):
        collector.collect(dump, None)
    go_on.release()
    posted.get(timeout=LONG)
    assert begun.acquire(timeout=LONG)
    assert not begun.acquire(timeout=0.2), "a second one was begun"

    collector.collect(dump, None)
    go_on.release()
    posted.get(timeout=LONG)

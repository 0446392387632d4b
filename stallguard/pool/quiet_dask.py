"""Dask's processes that wait: what they do all the time by default, and is of no use to a fleet, is switched off.

Dask is made for a thousand tasks a second.  A worker of a fleet gets one in an hour; by default it woke up 102 times a
second for itself, and took 2.9 % of a core beside the training.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Worker

RESTS = 5.0  # s between two messages of a worker that waits; the scheduler takes 30 s without one for its end
SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,  # of the stacks of tasks, 100 times a second
    # How late the event loop is, 50 times a second, and a message in the log from `limit` on.
    "distributed.admin.tick.interval": "30s",
    "distributed.admin.tick.cycle": "60s",
    "distributed.admin.tick.limit": "1h",
    "distributed.admin.system-monitor.interval": "30s",  # processor, memory, network and disk, for a page
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.scheduler.work-stealing": False,  # a job is bound to the machine that the dispatcher chose
    "distributed.scheduler.active-memory-manager.start": False,  # the results are exit codes
}


def load() -> None:
    """Import Dask's distributed without NumPy: 11 MB, for buffers of arrays, of which a fleet sends none.

    Raises ImportError.
    """
    modules: dict[str, Any] = sys.modules
    is_hidden = "numpy" not in modules and "distributed" not in modules
    if is_hidden:
        modules["numpy"] = None  # an import of it fails then, and distributed does without
    try:
        import distributed  # noqa: F401 - it stays in memory
    finally:
        if is_hidden:
            del modules["numpy"]


def resting(worker: type[Worker]) -> type[Worker]:
    """Return a class of Dask's worker that reports to the scheduler every few seconds; it was twice a second."""

    class Resting(worker):  # type: ignore[misc]  # the base is an argument
        """A worker of Dask that waits for hours."""

        async def heartbeat(self) -> None:
            """Report, and next time after a rest: the scheduler's answer asks for haste."""
            await super().heartbeat()
            self.periodic_callbacks["heartbeat"].callback_time = RESTS * 1000
            self.periodic_callbacks["find-missing"].callback_time = (
                RESTS * 1000
            )  # results of other workers: none

    Resting.__name__ = Resting.__qualname__ = worker.__name__
    return Resting

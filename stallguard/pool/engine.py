"""What the dispatcher needs of an engine, so that it is the same with each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from stallguard.pool.dispatch import ConnectedMachine

UNKNOWN = "the engine does not know it any more"


class Placed(NamedTuple):
    """How a start stands that the engine was given.  `failure`: why it ended without a result, "" if it has one.

    `is_begun`: whether a machine has begun it; until then it is queued.
    """

    is_over: bool
    failure: str = ""
    is_begun: bool = False


class Start(NamedTuple):
    """One start of a job, on a machine that has room for it now.

    `quiet`: the mark of a lease that was watched run out, "" if it was free.
    """

    job: str
    attempt: int
    needs: Mapping[str, float]
    address: str
    quiet: str


class Engine(Protocol):
    """Starts jobs on the machines that it is given, and notices machines that are gone."""

    def machines(self) -> list[ConnectedMachine]:
        """Return the machines that are connected."""

    def start(self, start: Start) -> None:
        """Start a job."""

    def placed(self, job: str) -> Placed:
        """Return how the last start of a job stands."""

    def forget(self, job: str) -> None:
        """Give up the last start of a job, if it has not begun."""

    def notify(self, address: str, job: str) -> None:
        """Have a machine look at the orders for a job; a message that is lost is like one that came late."""

    def retire(self, address: str) -> None:
        """Disconnect a machine; what is queued for it goes elsewhere."""

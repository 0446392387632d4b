"""Dask distributed as the engine: its scheduler brings starts to machines, and notices lost workers.

The engine runs in the scheduler's own process, beside its event loop; the dispatcher calls it from another thread.
What Dask does by itself when a worker is lost (running the task again at once) is switched off: the lease decides when
a job can start again.

**On a machine** it runs one function, `train`, which names a job and nothing that could be executed.  A worker imports
it by its dotted name, which is so part of what scheduler and worker say to each other: it must stay what it is.

**Its ports.**  Who reaches a port of Dask's scheduler or worker and is accepted can run code there (it unpickles what
it gets), so each port asks for a certificate of the fleet before it reads anything.  Measured with what a process of
each kind listens on (test_dask_engine_security.py):

- the ports of scheduler and worker: TLS, certificates verified on both sides, none of them in the list of revoked ones;
- the HTTP servers that Dask starts beside them ask for no certificate, even with TLS.  Here they open no port
  (`without_http`), except for the dashboard if it is wanted: on the loopback interface alone, with TLS.  A user of that
  machine can read it, and a page in a browser there cannot: Dask would take a WebSocket of any origin.

Settings of Dask in a user's files (~/.config/dask) or environment must not open another port, so `dask_settings` sets
each one that could.

**While it waits.**  Dask is made for a thousand tasks a second.  A worker of a fleet gets one in an hour; by default it
woke up 102 times a second for itself, and took 2.9 % of a core beside the training.  That is switched off
(`load_quietly`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import stallguard
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet.jobs.dispatch import UNKNOWN, ConnectedMachine, Placed, Start
from stallguard.fleet.machines import member_tls
from stallguard.fleet.store import needs_package
from stallguard.fleet.store.membership import Membership, owner
from stallguard.fleet.store.signing import Signatures
from stallguard.storage import private

if TYPE_CHECKING:
    from distributed import Client, Future, Scheduler, Security, Worker

    from stallguard.fleet.jobs.runs_here import RunsHere

RETIRES = 5.0  # s that a machine has to answer before it is removed without an answer
# The scheduler's message to a worker: look at the store.  What it says is not used for anything else.
NOTICE = "stallguard-notice"
_HERE: list[RunsHere] = []
DASHBOARD = "127.0.0.1:8787"  # Dask's own port of it
SEPARATOR = "#"  # in the name of a Dask worker: machine, separator, random name of its process
Server = TypeVar("Server", bound=type)
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


def serve(runs: RunsHere) -> None:
    """Let `train` use the runs of this process."""
    _HERE[:] = [runs]


async def train(job: str, quiet: str) -> int:
    """Train a job on this machine; return the exit code of its run.  Raises if it cannot begin here."""
    if not _HERE:
        raise RuntimeError("this Dask worker was not started by `stallguard fleet worker`")
    return await _HERE[0].train(job, quiet)


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
        self._nonce = os.urandom(4).hex()  # a scheduler that started again must not meet keys of the one before

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
            train, start.job, start.quiet, key=f"{start.job}-{start.attempt}-{self._nonce}", pure=False,
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
                stream.send({"op": NOTICE, "job": job})

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


def security(signatures: Signatures) -> Security:
    """Return what scheduler, worker and client of this fleet are made with.

    It refuses certificates by the newest list of revoked ones, and by a newer one after `renew`.
    Raises OSError, StallguardError if the extra is not installed, or the certificates cannot be used or have expired.
    """
    membership = signatures.member
    member_tls.check_dates(membership, time.time())
    member_tls.context(membership)  # its error says what is wrong with the file; Dask's would be that of OpenSSL
    try:
        load_quietly()
        from distributed import Security
    except ImportError as error:
        raise needs_package("a fleet", error) from error

    class WithRevoked(Security):  # type: ignore[misc]  # Dask has no types
        """Settings of Dask for TLS, with a list of revoked certificates in each context."""

        contexts: list[ssl.SSLContext]

        def get_connection_args(self, role: str) -> dict[str, Any]:
            """Return how to connect."""
            return self._with_list(super().get_connection_args(role))

        def get_listen_args(self, role: str) -> dict[str, Any]:
            """Return how to listen: without sessions that are resumed, at which OpenSSL verifies no certificate."""
            given = self._with_list(super().get_listen_args(role))
            # TLS 1.2 has other ways to resume than tickets; each system's OpenSSL has 1.3.
            given["ssl_context"].minimum_version = ssl.TLSVersion.TLSv1_3
            given["ssl_context"].num_tickets = 0
            return given

        def _with_list(self, given: dict[str, Any]) -> dict[str, Any]:
            made = given["ssl_context"]
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF  # without a list each certificate is refused
            made.load_verify_locations(signatures.file())
            self.contexts.append(made)
            return given

    roles = ("client", "scheduler", "worker")
    settings = WithRevoked(
        require_encryption=True,
        tls_ca_file=membership.ca,  # a text with line ends is taken as the certificate itself
        **{f"tls_{role}_cert": membership.certificate for role in roles},
        **{f"tls_{role}_key": membership.key for role in roles},
    )
    settings.contexts = []
    return settings


def renew(settings: Security, signatures: Signatures) -> None:
    """Have `settings` refuse certificates by the list that is the newest now: OpenSSL adds lists, and takes the newest.

    Connections that are open stay so.  Raises OSError.
    """
    file = signatures.file()
    for made in settings.contexts:
        made.load_verify_locations(file)


def drop(server: Any, signatures: Signatures) -> set[str]:
    """End the connections of a server of Dask whose other end is revoked; return the names.  Call it in its loop.

    Of those that it made itself only that of a worker to its scheduler stays open.
    """
    dropped, stream = set(), getattr(server, "batched_stream", None)
    own = [stream.comm] if stream is not None and stream.comm is not None else []
    for comm in [*server._comms, *own]:  # noqa: SLF001 - Dask has no other list of them; test_dask_engine_security.py needs it
        name, serial = _peer(comm)
        if signatures.is_revoked(serial):
            dropped.add(name)
            comm.abort()
    return dropped


def of_members(scheduler: Server) -> Server:
    """Return a class of Dask's scheduler that takes a worker only under a name that belongs to its certificate."""

    class OfMembers(scheduler):  # type: ignore[misc, valid-type]  # the base is an argument
        """A scheduler on which no member can be another one's machine."""

        async def add_worker(self, comm: Any, *, name: str = "", **facts: Any) -> None:
            """Answer a worker that wants to be one of this scheduler."""
            host, (by, _) = str(name).partition(SEPARATOR)[0], _peer(comm)
            if owner(host) == by:
                await super().add_worker(comm, name=name, **facts)
                return
            why = f"{host} does not belong to {by}, whose certificate it shows"
            await comm.write({"status": "error", "message": why, "time": time.time()})

    OfMembers.__name__ = OfMembers.__qualname__ = scheduler.__name__
    return OfMembers  # type: ignore[return-value]


def _peer(comm: Any) -> tuple[str, int]:
    """Return the name and the serial number of the certificate at the other end of a connection of Dask."""
    found = comm.extra_info["peercert"]
    [name] = [text for part in found["subject"] for field, text in part if field == "commonName"]
    return name, int(found["serialNumber"], 16)


def versions() -> dict[str, str]:
    """Return the versions of what scheduler and workers must agree on, by package."""
    import distributed

    return {"stallguard": stallguard.__version__, "distributed": distributed.__version__}


def dask_settings(membership: Membership, folder: Path, *, dashboard: bool = False) -> dict[str, Any]:
    """Return the settings for `dask.config.set` in a process of the fleet.

    `folder`: private, for the certificate of the dashboard, which Dask reads from files; and for what Dask writes.
    Raises OSError.
    """
    private.own(folder)
    both = folder / "dashboard.pem"
    if dashboard:
        private.write(both, f"{membership.certificate}\n{membership.key}".encode())
    return {
        "temporary-directory": str(folder),
        "distributed.comm.default-scheme": "tls",
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.min-version": 1.3,
        # Each of these would load code, or open a port.
        "distributed.scheduler.preload": [],
        "distributed.worker.preload": [],
        "distributed.client.preload": [],
        "distributed.scheduler.http.routes": ["distributed.http.statics"] if dashboard else [],
        "distributed.worker.http.routes": [],
        "distributed.scheduler.dashboard.tls.ca-file": None,
        "distributed.scheduler.dashboard.tls.cert": str(both) if dashboard else None,
        "distributed.scheduler.dashboard.tls.key": None,
        "distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin": [
            DASHBOARD, DASHBOARD.replace("127.0.0.1", "localhost"),
        ],
        # A worker would ask the driver of an NVIDIA card in the thread that answers the scheduler; a wedged one hangs.
        "distributed.diagnostics.nvml": False,
    }  # fmt: skip


def without_http(server: Server) -> Server:
    """Return a class of Dask's server, scheduler or worker, whose HTTP server opens no port."""

    class WithoutHttp(server):  # type: ignore[misc, valid-type]  # the base is an argument
        """A server of Dask without a port for HTTP."""

        def start_http_server(self, routes: Any, *_: Any, **__: Any) -> None:
            """Make what the rest of Dask relies on, and listen nowhere."""
            from distributed.http.routing import RoutingApplication
            from tornado.httpserver import HTTPServer

            self.http_application = RoutingApplication(routes)
            self.http_server = HTTPServer(self.http_application)

    WithoutHttp.__name__ = WithoutHttp.__qualname__ = server.__name__
    return WithoutHttp  # type: ignore[return-value]


def require_dashboard() -> None:
    """Raise StallguardError if the package that Dask's dashboard needs is not installed."""
    try:
        import distributed.dashboard.scheduler  # noqa: F401 - is it there?
    except ImportError as error:
        raise StallguardError(
            f"the dashboard of Dask needs a package that is missing: {error.name}",
            cure="install bokeh beside stallguard, or leave out --dashboard",
            code=CANNOT_RUN,
        ) from error


def load_quietly() -> None:
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
            self.periodic_callbacks["find-missing"].callback_time = RESTS * 1000  # results of other workers: none

    Resting.__name__ = Resting.__qualname__ = worker.__name__
    return Resting

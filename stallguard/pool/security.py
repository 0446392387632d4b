"""How Dask's processes of a fleet listen and connect: TLS with the members' certificates on both sides, nothing else.

Who reaches a port of Dask's scheduler or worker and is accepted can run code there (it unpickles what it gets), so each
port asks for a certificate of the fleet before it reads anything.  Measured with what a process of each kind listens on
(tests/pool/test_security.py):

- the ports of scheduler and worker: TLS, certificates verified on both sides, none of them in the list of revoked ones;
- the HTTP servers that Dask starts beside them ask for no certificate, even with TLS.  Here they open no port
  (`without_http`), except for the dashboard if it is wanted: on the loopback interface alone, with TLS.  A user of that
  machine can read it, and a page in a browser there cannot: Dask would take a WebSocket of any origin.

Settings of Dask in a user's files (~/.config/dask) or environment must not open another port, so `dask_settings` sets
each one that could.
"""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import stallguard
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet import member_tls
from stallguard.fleet.membership import Membership, owner
from stallguard.fleet.signing import Signatures, missing
from stallguard.pool import quiet_dask
from stallguard.storage import private

if TYPE_CHECKING:
    from distributed import Security

DASHBOARD = "127.0.0.1:8787"  # Dask's own port of it
SEPARATOR = "#"  # in the name of a Dask worker: machine, separator, random name of its process
Server = TypeVar("Server", bound=type)


def security(signatures: Signatures) -> Security:
    """Return what scheduler, worker and client of this fleet are made with.

    It refuses certificates by the newest list of revoked ones, and by a newer one after `renew`.
    Raises OSError, StallguardError if the extra is not installed, or the certificates cannot be used or have expired.
    """
    membership = signatures.member
    member_tls.check_dates(membership, time.time())
    member_tls.context(
        membership
    )  # its error says what is wrong with the file; Dask's would be that of OpenSSL
    try:
        quiet_dask.load()
        from distributed import Security
    except ImportError as error:
        raise missing(error) from error

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
    for comm in [*server._comms, *own]:  # noqa: SLF001 - Dask has no other list of them; test_security.py needs it
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

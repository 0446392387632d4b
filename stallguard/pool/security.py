"""How Dask's processes of a fleet listen and connect: TLS with the members' certificates on both sides, nothing else.

Who reaches a port of Dask's scheduler or worker and is accepted can run code there (it unpickles what it gets), so each
port asks for a certificate of the fleet before it reads anything.  Measured with what a process of each kind listens on
(tests/pool/test_security.py):

- the ports of scheduler and worker: TLS, certificates verified on both sides;
- the HTTP servers that Dask starts beside them ask for no certificate, even with TLS.  Here they open no port
  (`without_http`), except for the dashboard if it is wanted: on the loopback interface alone, with TLS.  A user of that
  machine can read it, and a page in a browser there cannot: Dask would take a WebSocket of any origin.

Settings of Dask in a user's files (~/.config/dask) or environment must not open another port, so `dask_settings` sets
each one that could.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import stallguard
from stallguard.errors import CANNOT_RUN, StallguardError
from stallguard.fleet import member_tls
from stallguard.fleet.membership import Membership
from stallguard.storage import private

if TYPE_CHECKING:
    from distributed import Security

DASHBOARD = "127.0.0.1:8787"  # Dask's own port of it
Server = TypeVar("Server", bound=type)


def security(membership: Membership) -> Security:
    """Return what scheduler, worker and client of this fleet are made with.

    Raises StallguardError if the extra is not installed, or the certificates cannot be used or have expired.
    """
    member_tls.check_dates(membership, time.time())
    member_tls.context(
        membership
    )  # its error says what is wrong with the file; Dask's would be that of OpenSSL
    try:
        from distributed import Security
    except ImportError as error:
        raise _missing(error) from error
    roles = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=membership.ca,  # a text with line ends is taken as the certificate itself
        **{f"tls_{role}_cert": membership.certificate for role in roles},
        **{f"tls_{role}_key": membership.key for role in roles},
    )


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
        "distributed.comm.tls.min-version": 1.2,
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


def _missing(error: ImportError) -> StallguardError:
    return StallguardError(
        f"a fleet needs a package that is missing: {error.name}",
        cure="install the extra: stallguard-train[fleet]",
        code=CANNOT_RUN,
    )

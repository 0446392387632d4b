"""TLS between members of a fleet: both sides show the certificate of their fleet file.

A host name is not verified: every certificate of the authority is that of a member, whose address can change.
Scheduler and workers refuse a certificate that is in the list of revoked ones (signing.py, engine/dask_engine.py).
"""

from __future__ import annotations

import re
import socket
import ssl
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.fleet.store import signing
from stallguard.fleet.store.membership import Membership
from stallguard.storage import private

DAY = 86400.0
RENEW = (
    "on the machine with the authority's file: stallguard fleet invite NAME (its own: stallguard fleet init --renew); "
    "then restart the services of the member"
)
PORT = 8786  # of a scheduler, as Dask's own
_HOST = re.compile(r"[A-Za-z0-9_.:%-]+")  # a name, or an address of IPv4 or IPv6
# The words of OpenSSL for a certificate that the other side does not know; for its own view, and for the other's.
STRANGER = ("CERTIFICATE_VERIFY_FAILED", "UNKNOWN_CA")


def expires(membership: Membership) -> float:
    """Return when the member's certificate ends, in seconds since 1970.  Raises StallguardError."""
    signing.require_package()
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(membership.certificate.encode()).not_valid_after_utc.timestamp()
    except ValueError as error:
        raise signing.unusable(str(error)) from error


def days_left(membership: Membership, now: float) -> float:
    """Return how many days the certificates last.  `now`: seconds since 1970.  Raises StallguardError."""
    return (expires(membership) - now) / DAY


def check_dates(membership: Membership, now: float) -> None:
    """Raise StallguardError if the certificates have ended.  `now`: seconds since 1970."""
    left = days_left(membership, now)
    if left <= 0:
        when = time.strftime("%Y-%m-%d", time.gmtime(expires(membership)))
        raise StallguardError(
            f"the certificate of member {membership.name} has expired",
            why=f"it was valid until {when}; or the clock of this machine is wrong",
            cure=RENEW,
            code=CANNOT_RUN,
        )


def context(membership: Membership, *, is_server: bool = False) -> ssl.SSLContext:
    """Return what a member connects with, or listens with.  Raises StallguardError if the file has no certificates."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname, made.verify_mode = False, ssl.CERT_REQUIRED
    try:
        made.load_verify_locations(cadata=membership.ca)
        with tempfile.TemporaryDirectory() as folder:  # mode 0700; the ssl module reads certificates from files alone
            both = Path(folder) / "member.pem"
            private.write(both, f"{membership.certificate}\n{membership.key}".encode())
            made.load_cert_chain(both)
    except (ssl.SSLError, ValueError) as error:
        raise signing.unusable(str(error)) from error
    return made


def endpoint(address: str) -> tuple[str, int]:
    """Return host and port of "tls://host:port".  Raises ValueError."""
    parts = urlsplit(address)
    if parts.scheme != "tls" or parts.path or not _HOST.fullmatch(parts.hostname or ""):
        raise ValueError(address)
    return str(parts.hostname), parts.port or PORT


def scheduler_address(text: str) -> str:
    """Return HOST[:PORT] as an address: "tls://host:port"; "" is this machine.  Raises StallguardError."""
    host = text or socket.gethostname()
    if host.count(":") > 1 and not host.startswith("["):
        host = f"[{host}]"  # IPv6
    try:
        name, port = endpoint(f"tls://{host}")
    except ValueError as error:
        raise StallguardError(
            f"{text!r} is not an address of a scheduler",
            why="it is HOST or HOST:PORT, as the other machines know it",
            cure="--scheduler studio-1.local:8786",
            code=USAGE,
        ) from error
    return f"tls://[{name}]:{port}" if ":" in name else f"tls://{name}:{port}"


class SchedulerReach(NamedTuple):
    """Whether a scheduler can be reached: `trouble` says why not, "" if it can; `lasting`: waiting does not help."""

    trouble: str = ""
    lasting: bool = False


def reach(membership: Membership, seconds: float) -> SchedulerReach:
    """Return whether the scheduler can be reached, after about `seconds` at most.  Raises StallguardError as `context`.

    A certificate of another fleet is noticed only when something is read: with TLS 1.3 the client's certificate is
    examined after the client's side of the handshake is done.  One that refuses sends an alert at once.
    """
    secure = context(membership)
    try:
        place = endpoint(membership.scheduler)
        with (
            socket.create_connection(place, timeout=seconds) as plain,
            secure.wrap_socket(plain, server_hostname=membership.fleet) as secured,
        ):
            secured.settimeout(min(1.0, seconds))
            try:
                if not secured.recv(1):
                    return SchedulerReach("it closed the connection")
            except TimeoutError:  # it waits for a greeting
                return SchedulerReach()
    except ssl.SSLError as error:
        return SchedulerReach(refusal(str(error)), lasting=True)
    except (OSError, ValueError) as error:
        return SchedulerReach(getattr(error, "strerror", None) or str(error) or type(error).__name__)
    return SchedulerReach()


def refusal(text: str) -> str:
    """Return what an error of OpenSSL means between members."""
    plain = text.upper().replace(" ", "_")
    if "EXPIRED" in plain:
        return f"a certificate has expired: {RENEW}"
    if "REVOKED" in plain:
        return "a certificate is revoked: that of this machine, unless it is the scheduler's"
    if any(word in plain for word in STRANGER) or "BAD_CERTIFICATE" in plain:
        return "it has the certificate of another fleet: files of one fleet belong on both machines"
    if "WRONG_VERSION_NUMBER" in plain or "RECORD_LAYER_FAILURE" in plain:
        return "what listens there does not speak TLS: it is no scheduler of a fleet"
    return text

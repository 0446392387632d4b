"""How a bucket is reached, and with which credentials: those of every program for S3.

Who sets all in variables needs nothing else.  Else a short process asks botocore (aws_settings.py), again before the
credentials end: what waits for jobs for days must not hold 40 MB for a question an hour.  The answer comes through a
pipe, so secrets are in no argument, file or log.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from stallguard.errors import StallguardError
from stallguard.fleet import aws_settings
from stallguard.fleet.store import StoreError, needs_package
from stallguard.host import tool
from stallguard.worker import REFUSALS, Worker

LIMIT = 20.0  # s that botocore has to answer: it can ask a server for credentials
EARLY = 600.0  # s before they end that credentials are asked for again, as botocore does
PAUSE = 10.0  # s between two questions, if one failed or credentials end soon
# With these alone, and without files in ~/.aws, botocore would find nothing else.
PLAIN = frozenset(
    {
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3",
        "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_CA_BUNDLE",
    }
)  # fmt: skip
REGION = "us-east-1"  # for which requests are signed if none is named


class Access(msgspec.Struct, frozen=True):
    """What a bucket is reached with.

    `endpoint`: with the bucket's name if it `is_in_host`; `ca_bundle`: path of a file of certificates; `expires`: Unix
    time, None for credentials that do not end.
    """

    endpoint: str
    is_in_host: bool
    region: str
    key: str
    secret: str
    token: str | None = None
    ca_bundle: str | None = None
    expires: float | None = None

    def __repr__(self) -> str:
        """Say nothing of the credentials."""
        return f"Access({self.endpoint!r}, {self.region!r})"


class _Failure(msgspec.Struct, frozen=True):
    """What the process says instead.  `missing`: a package."""

    error: str = "what it says of credentials cannot be read"
    missing: str = ""


class BucketAccess:
    """The access to one bucket, which is renewed in time.  Any thread can ask for it."""

    def __init__(self, bucket: str, env: Mapping[str, str], now: Callable[[], float] = time.time) -> None:
        """Find it.  Raises StoreError if there are no credentials, StallguardError if a package is missing."""
        self._bucket, self._now = bucket, now
        self._asks = threading.Lock()  # held by the thread that asks, which alone changes what follows
        self._options: tuple[str, ...] = ()
        self._failure = ""
        self._renews_at: float | None = None
        self._found = from_variables(env) or asked(bucket)
        self._plan()

    def current(self) -> Access:
        """Return what is valid now.  Raises StoreError if the credentials have ended, and no others are to be had.

        While they are valid no request waits for new ones: a server that gives them can hang.
        """
        if self._is_due():
            if self._is_valid():
                self._renew_beside()
            else:
                with self._asks:
                    if self._is_due():
                        self._renew()
        found = self._found
        if not self._is_valid():
            raise StoreError(
                self._failure or f"s3://{self._bucket}: the credentials have ended, and there are no others"
            )
        return found

    def find_region(self) -> Access:
        """Ask S3 in which region the bucket is, and return the access there.  Raises StoreError, StallguardError."""
        with self._asks:
            if not self._options:
                self._options = (aws_settings.FIND_REGION,)
                self._found = asked(self._bucket, self._options)
                self._plan()
            return self._found

    def _is_due(self) -> bool:
        return self._renews_at is not None and self._now() >= self._renews_at

    def _is_valid(self) -> bool:
        return self._found.expires is None or self._now() < self._found.expires

    def _renew_beside(self) -> None:
        """Renew in a thread, if none does it yet."""
        if not self._asks.acquire(blocking=False):
            return

        def renew() -> None:
            try:
                self._renew()
            finally:
                self._asks.release()

        try:
            Worker(renew, "credentials").start()
        except REFUSALS:
            self._asks.release()  # the next request tries again

    def _renew(self) -> None:
        try:
            self._found, self._failure = asked(self._bucket, self._options), ""
            self._plan()
        except (StoreError, StallguardError) as error:
            self._failure, self._renews_at = str(error), self._now() + PAUSE

    def _plan(self) -> None:
        """Set when to ask again.  What lives shorter than EARLY is asked for after half of its time."""
        self._renews_at = None
        if self._found.expires is not None:
            left = self._found.expires - self._now()
            self._renews_at = self._now() + max(left - min(EARLY, left / 2), PAUSE)


def from_variables(env: Mapping[str, str]) -> Access | None:
    """Return the access that variables alone describe, None if botocore has to be asked."""
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    key, secret = env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY")
    others = {name for name in env if name.startswith("AWS_")} - PLAIN
    folder = Path(env.get("HOME") or Path.home()) / ".aws"
    if not endpoint or not key or not secret or others or folder.exists():
        return None
    return Access(
        endpoint=endpoint.rstrip("/"),
        is_in_host=False,
        region=env.get("AWS_DEFAULT_REGION") or env.get("AWS_REGION") or REGION,
        key=key,
        secret=secret,
        token=env.get("AWS_SESSION_TOKEN") or None,
        ca_bundle=env.get("AWS_CA_BUNDLE") or env.get("REQUESTS_CA_BUNDLE") or None,
    )


def asked(bucket: str, options: tuple[str, ...] = ()) -> Access:
    """Ask botocore in a process.  Raises StoreError, and StallguardError if it is not installed."""
    try:
        answer = tool.run(
            [sys.executable, "-P", "-m", aws_settings.__name__, bucket, *options], LIMIT, env=os.environ
        )
    except OSError as error:
        raise StoreError(f"s3://{bucket}: credentials cannot be asked for: {error}") from error
    if answer.incomplete:
        raise StoreError(f"s3://{bucket}: credentials are not given within {LIMIT:g} s")
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(answer.output, type=Access)
    try:
        failure = msgspec.json.decode(answer.output, type=_Failure)
    except msgspec.DecodeError:
        failure = _Failure(f"the process that asks for credentials ended with {answer.code}")
    if failure.missing:
        raise needs_package("s3", ImportError(name=failure.missing))
    raise StoreError(f"s3://{bucket}: {failure.error}")

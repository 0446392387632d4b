"""How a bucket is reached, and with which credentials: those of every program for S3.

Who sets all in variables needs nothing else.  Else a short process asks botocore, again before the credentials
end (`python -m stallguard.fleet.store.bucket_access BUCKET`).  botocore knows all places: profiles, single sign-on,
roles, programs that give credentials, instances, endpoints of partitions.  It takes 40 MB, so it is imported in that
process, which ends, and never in one that waits for jobs for days.  The answer comes through a pipe, so secrets are in
no argument, file or log.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from stallguard.errors import StallguardError
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
CONNECT, READ = 5, 10  # s, of a request for the region of a bucket
FIND_REGION = "--find-region"
ANY_REGION = "aws-global"  # botocore's name for "none was named"; such requests are signed for us-east-1


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
                self._options = (FIND_REGION,)
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
        endpoint=endpoint.rstrip("/"), is_in_host=False,
        region=env.get("AWS_DEFAULT_REGION") or env.get("AWS_REGION") or REGION, key=key, secret=secret,
        token=env.get("AWS_SESSION_TOKEN") or None,
        ca_bundle=env.get("AWS_CA_BUNDLE") or env.get("REQUESTS_CA_BUNDLE") or None,
    )  # fmt: skip


def asked(bucket: str, options: tuple[str, ...] = ()) -> Access:
    """Ask botocore in a process.  Raises StoreError, and StallguardError if it is not installed."""
    try:
        answer = tool.run([sys.executable, "-P", "-m", __name__, bucket, *options], LIMIT, env=os.environ)
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
        raise needs_package("a store of the kind s3://", ImportError(name=failure.missing))
    raise StoreError(f"s3://{bucket}: {failure.error}")


def main(bucket: str, *options: str) -> int:
    """Write the settings as JSON, or the error; 1 if there is one."""
    try:
        found = settings(bucket, find_region=FIND_REGION in options)
    except ImportError as error:
        found = {"missing": error.name or str(error)}
    except EOFError:  # this process has no terminal: that of a service has none either
        found = {"error": "its profile asks for a code (mfa_serial), which cannot be entered here"}
    except Exception as error:  # noqa: BLE001 - each kind of botocore, and of the programs that it runs
        found = {"error": " ".join(str(error).split()) or type(error).__name__}
    sys.stdout.write(json.dumps(found))
    return int("endpoint" not in found)


def settings(bucket: str, *, find_region: bool) -> dict[str, Any]:
    """Return credentials, region and address of a bucket.  Raises what botocore raises.

    `find_region`: ask S3 in which region the bucket is, because the one that is set is wrong.
    """
    import botocore.session

    session = botocore.session.get_session()
    credentials = session.get_credentials()
    if credentials is None:
        raise ValueError("there are no credentials: no profile, no variables, no role of this machine")
    keys = credentials.get_frozen_credentials()
    region = session.get_config_variable("region") or os.environ.get("AWS_REGION")
    if find_region:
        region = _region_of(session, bucket, region) or region
    url, region = _address(session, bucket, region)
    # As `aws configure export-credentials` reads it: there is no public name for it.
    expires = getattr(credentials, "_expiry_time", None)
    verify = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    return {
        "key": keys.access_key, "secret": keys.secret_key, "token": keys.token,
        "expires": expires.timestamp() if expires else None, "region": region, "ca_bundle": verify or None,
        **_endpoint(url, bucket),
    }  # fmt: skip


def _endpoint(url: str, bucket: str) -> dict[str, Any]:
    """Return the address without the bucket if it is in the path, and whether it is in the host's name."""
    parts = urlsplit(url)
    server, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    in_path = path == f"/{bucket}" or path.endswith(f"/{bucket}")
    return {"endpoint": server + (path.removesuffix(f"/{bucket}") if in_path else path), "is_in_host": not in_path}


def _address(session: Any, bucket: str, region: str | None) -> tuple[str, str]:
    """Return the URL to which botocore would send a request for a bucket, without sending it, and the region."""
    from botocore import UNSIGNED
    from botocore.awsrequest import AWSResponse
    from botocore.config import Config

    client = session.create_client("s3", region_name=region, config=Config(signature_version=UNSIGNED))
    urls: list[str] = []

    def answer(request: Any, **_: object) -> Any:
        urls.append(request.url)
        return AWSResponse(request.url, 200, {}, _NoBody())

    client.meta.events.register("before-send.s3.HeadBucket", answer)
    client.head_bucket(Bucket=bucket)
    named = client.meta.region_name
    return urls[0], "us-east-1" if named in (None, ANY_REGION) else named


class _NoBody:
    """What botocore reads as the body of an answer."""

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        """Yield nothing."""
        yield b""


def _region_of(session: Any, bucket: str, region: str | None) -> str | None:
    """Ask S3 in which region a bucket is; None if it does not say."""
    from botocore.config import Config
    from botocore.exceptions import ClientError

    tries = {"total_max_attempts": 2}
    config = Config(connect_timeout=CONNECT, read_timeout=READ, retries=tries)
    client = session.create_client("s3", region_name=region, config=config)
    try:
        answer = client.head_bucket(Bucket=bucket)
    except ClientError as error:  # S3 names the region also to who must not read the bucket
        answer = error.response
    found = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("x-amz-bucket-region")
    return str(found) if found else None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

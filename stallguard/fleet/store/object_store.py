"""A store in a bucket of S3 or of a server that speaks its protocol.

obstore sends the requests; `create` is a put with `If-None-Match: *`, which AWS has since August 2024, MinIO and Ceph
too.  A server that ignores it would let two machines win: `doctor --store` finds that out.

Credentials, region and the server's address are those of every program for S3: AWS_PROFILE, AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL and the files of ~/.aws (bucket_access.py).
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from stallguard.fleet.store import StoreError, each, needs_package
from stallguard.fleet.store.bucket_access import Access, BucketAccess

# Seconds, and tries in all: a renewal must come to an end within the lease (lease.py).
CONNECT, READ, TRIES = 5, 15, 2
# A request is sent and answered within READ.  A slow line needs longer for more than SMALL: such requests have SLOW,
# which parts of 5 MB, two at a time, meet from 1.4 Mbit/s on.
SMALL, SLOW, AT_ONCE = 256 << 10, 60, 2
PART, MOST_PARTS = 5 << 20, 9_000  # bytes; S3 takes 10,000 parts
CHUNK = 1 << 20  # of a file that is fetched
PAGE = 1000  # keys
WHOLE = timedelta(days=30)  # for a request in all, else 30 s: a checkpoint of many GB takes what it takes
REASON = 300  # characters of why a request failed
# obstore has few classes of errors; what happened is in the text, with S3's answer.
_NO_BUCKET = "<Code>NoSuchBucket</Code>"
_WRONG_REGION = re.compile(
    r"<Code>(?:PermanentRedirect|AuthorizationHeaderMalformed)</Code>|redirect without LOCATION", re.IGNORECASE
)
_DETAILS = "\n\nDebug source:"  # begins the second part of a text: the values in Rust
_S3_SAYS = re.compile(r"<Error>.*?<Message>([^<]+)</Message>", re.DOTALL)
_STATUS = re.compile(r"status code: (\d{3}[A-Za-z ]*)")
_SERVER = re.compile(r"Error performing [A-Z]+ (\w+://[^/?\s]+)")
_TIMEOUT = re.compile(r"kind: Timeout\b|\bTimedOut\b")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_SYSTEM_SAYS = re.compile(r'(?:message|error): "([^"]+)"')
T = TypeVar("T")


class ObjectStore:
    """Implements store.Store."""

    def __init__(self, place: str) -> None:
        """`place`: "bucket/prefix".  Raises StallguardError if the extra is missing, StoreError without credentials."""
        self.url, self._place = f"s3://{place}", place
        self._bucket, _, self._prefix = place.partition("/")
        try:
            import obstore
        except ImportError as error:
            raise needs_package("a store of the kind s3://", error) from error
        self._obstore: Any = obstore
        self._turn = threading.Lock()
        self._clients: dict[int, tuple[Access, Any]] = {}  # by the seconds that a request may take
        self._access = BucketAccess(self._bucket, os.environ)

    def create(self, key: str, data: bytes) -> bool:
        """See store.Store."""
        path = self._path(key)
        with self._errors(key):
            try:
                self._do(lambda client: self._obstore.put(client, path, data, mode="create"), len(data))
            except Exception as error:
                # AlreadyExistsError; or 409, if two creations meet; or no answer to one that was done.
                there = self.read(key)
                if there is None:
                    raise StoreError(f"cannot create {self.url}/{key}: {_reason(error)}") from error
                return there == data
            return True

    def replace(self, key: str, data: bytes) -> None:
        """See store.Store."""
        path = self._path(key)
        with self._errors(key):
            self._do(lambda client: self._obstore.put(client, path, data, max_concurrency=AT_ONCE), len(data))

    def read(self, key: str) -> bytes | None:
        """See store.Store."""
        path = self._path(key)
        with self._errors(key):
            try:
                return self._do(lambda client: bytes(self._obstore.get(client, path).bytes()))
            except FileNotFoundError as error:
                self._must_have_bucket(error)
                return None

    def names(self, folder: str) -> Sequence[str]:
        """See store.Store."""
        found = self._listed(folder)
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return [path.rpartition("/")[2] for path in paths]

    def versions(self, folder: str) -> Mapping[str, str]:
        """See store.Store.  The ETag follows the content, the time each replacement."""
        return {
            one["path"].rpartition("/")[2]: f"{one['e_tag']} {one['last_modified']}"
            for one in self._listed(folder)["objects"]
        }

    def put(self, key: str, file: Path) -> None:
        """See store.Store."""
        path = self._path(key)
        with self._errors(key):
            size = file.stat().st_size
            part = max(PART, size // MOST_PARTS + 1)
            self._do(
                lambda client: self._obstore.put(client, path, file, chunk_size=part, max_concurrency=AT_ONCE), size
            )

    def get(self, key: str, file: Path) -> bool:
        """See store.Store."""
        path = self._path(key)

        def fetch(client: Any) -> bool:
            try:
                found = self._obstore.get(client, path)
            except FileNotFoundError as error:
                self._must_have_bucket(error)
                return False
            with file.open("wb") as copy:
                copy.writelines(found.stream(min_chunk_size=CHUNK))
            return True

        with self._errors(key):
            return self._do(fetch)

    def remove(self, key: str) -> None:
        """See store.Store."""
        path = self._path(key)

        def clear(client: Any) -> None:
            below = self._obstore.list(client, path, chunk_size=PAGE)
            self._obstore.delete(client, [path, *(one["path"] for page in below for one in page)])

        with self._errors(key):
            self._do(clear)

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{key}".strip("/")

    def _listed(self, folder: str) -> Any:
        """Return what is in a folder, without the key "folder/" that some programs make."""
        path = self._path(folder)
        with self._errors(folder):
            found = self._do(lambda client: self._obstore.list_with_delimiter(client, path))
        return {**found, "objects": [one for one in found["objects"] if one["path"] != path]}

    def _do(self, request: Callable[[Any], T], size: int = 0) -> T:
        """Return what a request returns that sends `size` bytes.  If S3 names another region it is repeated there."""
        access = self._access.current()
        try:
            return _interruptibly(request, self._client(access, size))
        except Exception as error:
            if not _is_wrong_region(error):
                raise
            there = self._access.find_region()
            if there.region == access.region:
                raise
            return _interruptibly(request, self._client(there, size))

    def _client(self, access: Access, size: int) -> Any:
        """Return the connections for requests of a size; others if the credentials are others."""
        limit = READ if size <= SMALL else SLOW
        with self._turn:
            made = self._clients.get(limit)
            if made is None or made[0] != access:
                made = self._clients[limit] = access, _connections(self._bucket, access, limit)
            return made[1]

    def _must_have_bucket(self, error: FileNotFoundError) -> None:
        """Raise `error` if it is the bucket that is not there: it must not look like an empty store."""
        if _is_missing_bucket(error):
            raise error

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise each error as StoreError: of the network, of S3, of the credentials and of local files."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if _is_missing_bucket(error):
                raise StoreError(f"there is no bucket {self._bucket}") from error
            raise StoreError(f"s3://{self._place}/{key}: {_reason(error)}") from error


def _connections(bucket: str, access: Access, limit: int) -> Any:
    """Return a store of obstore, each request of which takes `limit` seconds at most.

    obstore reads variables too, but what is given here comes first.
    """
    from obstore.store import S3Store

    options: dict[str, Any] = {
        "allow_http": True,
        "connect_timeout": timedelta(seconds=CONNECT),
        "read_timeout": timedelta(seconds=limit),
        "timeout": WHOLE,
    }
    if access.ca_bundle and access.endpoint.startswith("https:"):
        options["root_certificate"] = Path(access.ca_bundle).read_bytes()
    keys = {"access_key_id": access.key, "secret_access_key": access.secret, "token": access.token, "expires_at": None}
    return S3Store(
        bucket,
        config={
            "endpoint": access.endpoint, "aws_endpoint_url_s3": access.endpoint, "region": access.region,
            "virtual_hosted_style_request": access.is_in_host, "conditional_put": "etag", "skip_signature": False,
        },
        client_options=options,
        retry_config={"max_retries": TRIES - 1, "retry_timeout": timedelta(seconds=limit + CONNECT)},
        credential_provider=lambda: keys,
    )  # fmt: skip


def _interruptibly(request: Callable[[Any], T], client: Any) -> T:
    """Return what a request returns.  obstore lets no handler of a signal run, so it must not hold the main thread."""
    if threading.current_thread() is threading.main_thread():
        return each(request, [client])[0]
    return request(client)


def _is_missing_bucket(error: BaseException) -> bool:
    """Return whether S3 says that there is no such bucket.  obstore's class is also that of a key that is not there."""
    return _NO_BUCKET in str(error)


def _is_wrong_region(error: BaseException) -> bool:
    """Return whether S3 says that the bucket is in another region.  Nothing was done then."""
    return bool(_WRONG_REGION.search(str(error)))


def _reason(error: BaseException) -> str:
    """Return in a line why a request failed."""
    text, _, details = str(error).partition(_DETAILS)
    if says := _S3_SAYS.search(text):
        found = html.unescape(says[1])
    elif status := _STATUS.search(text):
        found = f"its server answers {status[1].strip()}"
    elif _is_wrong_region(error):
        found = "the bucket is in another region than the one that is set"
    elif "HTTP error" in text:
        found = _of_network(text, details)
    elif "No CA certificates" in details:
        found = "this system has no certificates of authorities; name a file of them with AWS_CA_BUNDLE"
    else:
        found = text
    return " ".join(found.split())[:REASON] or type(error).__name__


def _of_network(text: str, details: str) -> str:
    server = found[1] if (found := _SERVER.search(text)) else "its server"
    if _TIMEOUT.search(details):
        return f"{server} does not answer in time"
    if refused := _CERTIFICATE.search(details):
        return f"the certificate of {server} is not accepted: {refused[1]}"
    says = _SYSTEM_SAYS.findall(details)
    return f"{server} cannot be reached: {says[-1]}" if says else f"{server} cannot be reached"

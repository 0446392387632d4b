"""A store in a bucket of S3 or of a server that speaks its protocol.

fsspec and s3fs do the work; `create` is a put with `If-None-Match: *`, which AWS has since August 2024, MinIO and Ceph
too.  A server that ignores it would let two machines win: `doctor --store` finds that out.

Credentials, region and the server's address are those of every program for S3: AWS_PROFILE, AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL and the files of ~/.aws.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stallguard.fleet.store import StoreError, needs_package

# Seconds, and tries in all: a renewal must come to an end within the lease (lease.py).
CONNECT, READ, TRIES = 5, 15, 2
AT_ONCE = 64  # requests: of a scheduler that starts, and of a list of all jobs
NO_BUCKET = "NoSuchBucket"  # S3's code; s3fs raises FileNotFoundError for it, as for a key that is not there


class ObjectStore:
    """Implements store.Store."""

    def __init__(self, place: str) -> None:
        """`place`: "bucket/prefix".  Raises StallguardError if the extra is missing."""
        self.url, self._place = f"s3://{place}", place
        try:
            import s3fs
        except ImportError as error:
            raise needs_package("s3", error) from error
        settings = {
            "connect_timeout": CONNECT,
            "read_timeout": READ,
            "retries": {"total_max_attempts": TRIES},
            "max_pool_connections": AT_ONCE,
        }
        with self._errors(""):
            # Its own instance: fsspec would share one, with its cache of listings, between all callers.
            self._files: Any = s3fs.S3FileSystem(
                use_listings_cache=False, skip_instance_cache=True, config_kwargs=settings
            )
            self._files.retries = 1  # of s3fs, around those of botocore: tries in all

    def create(self, key: str, data: bytes) -> bool:
        """See store.Store."""
        with self._errors(key):
            try:
                self._files.pipe_file(self._path(key), data, mode="create")
            except Exception as error:
                # FileExistsError; or 409, if two creations meet; or no answer to one that was done.
                there = self.read(key)
                if there is None:
                    raise StoreError(f"cannot create {self.url}/{key}: {error}") from error
                return there == data
            return True

    def replace(self, key: str, data: bytes) -> None:
        """See store.Store."""
        with self._errors(key):
            self._files.pipe_file(self._path(key), data)

    def read(self, key: str) -> bytes | None:
        """See store.Store."""
        with self._errors(key):
            try:
                return bytes(self._files.cat_file(self._path(key)))
            except FileNotFoundError as error:
                self._must_have_bucket(error)
                return None

    def names(self, folder: str) -> Sequence[str]:
        """See store.Store."""
        with self._errors(folder):
            try:
                found = self._files.ls(self._path(folder), detail=False, refresh=True)
            except FileNotFoundError as error:
                self._must_have_bucket(error)
                return []
            names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
            return [name for name in names if name]

    def versions(self, folder: str) -> Mapping[str, str]:
        """See store.Store.  The ETag follows the content, the time each replacement."""
        with self._errors(folder):
            try:
                found = self._files.ls(self._path(folder), detail=True, refresh=True)
            except FileNotFoundError as error:
                self._must_have_bucket(error)
                return {}
            return {
                name: f"{one.get('ETag')} {one.get('LastModified')}"
                for one in found
                if one["type"] == "file" and (name := str(one["name"]).rpartition("/")[2])
            }

    def put(self, key: str, file: Path) -> None:
        """See store.Store."""
        with self._errors(key):
            self._files.put_file(str(file), self._path(key))

    def get(self, key: str, file: Path) -> bool:
        """See store.Store."""
        with self._errors(key):
            try:
                self._files.get_file(self._path(key), str(file))
            except FileNotFoundError:
                return False
            return True

    def remove(self, key: str) -> None:
        """See store.Store."""
        with self._errors(key), contextlib.suppress(FileNotFoundError):
            self._files.rm(self._path(key), recursive=True)

    def _path(self, key: str) -> str:
        return f"{self._place}/{key}"

    def _must_have_bucket(self, error: FileNotFoundError) -> None:
        """Raise StoreError if it is the bucket that is not there: it must not look like an empty store."""
        answer = getattr(error.__cause__ or error.__context__, "response", None) or {}
        if answer.get("Error", {}).get("Code") == NO_BUCKET:
            raise StoreError(f"there is no bucket {self._place.partition('/')[0]}") from error

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """Raise each error as StoreError: s3fs passes on those of the network, of botocore and of its own."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())[:300] or type(error).__name__
            raise StoreError(f"s3://{self._path(key)}: {text}") from error

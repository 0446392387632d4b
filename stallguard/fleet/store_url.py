"""Which store a URL names.

A shared folder (`file://`, NFS, SMB or a local disk) needs no package; `s3://` needs the extra `fleet`.  Another kind
is refused: whether it creates a file only if there is none was not tried.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.store import Store

KINDS = ("file", "s3")


def open_store(url: str) -> Store:
    """Return the store of a URL, or of the path of a folder.

    Raises StallguardError for another kind, and if the package for it is missing; StoreError if it cannot be reached.
    """
    kind, rest = split(url)
    if kind == "file":
        from stallguard.fleet.folder_store import FolderStore

        return FolderStore(Path(rest))
    from stallguard.fleet.object_store import ObjectStore

    return ObjectStore(rest)


def split(url: str) -> tuple[str, str]:
    """Return the kind of a URL and the rest: an absolute path, or "bucket/prefix".  Raises StallguardError."""
    if url.startswith("/"):
        return "file", url
    parts = urlsplit(url)
    place = f"{parts.netloc}{parts.path}".rstrip("/")
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return "file", unquote(parts.path)
    if parts.scheme == "s3" and parts.netloc:
        return "s3", place
    raise StallguardError(
        f"{url!r} is not a store",
        why="a store is file:///absolute/folder or s3://bucket/prefix"
        if parts.scheme in ("", *KINDS)
        else f"it is not known whether {parts.scheme}:// creates a file only if there is none",
        cure="see docs/fleet.md",
        code=USAGE,
    )

"""The files of one collector: without secrets, within its budget of bytes, not after its time.

A full disk is recorded, not raised: the collector's facts are useful without its files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from stallguard import jsontext
from stallguard.collectors.redact import Redactor
from stallguard.storage import private

HALF_SECRET = 512  # bytes left out at a cut in a text without lines


class File(msgspec.Struct, frozen=True):
    """A file of the bundle.  `cut`: there was more than the budget allows."""

    name: str
    size: int  # bytes
    cut: bool = False


class Sheet:
    """Writes files into `directory` until `limit` bytes are spent or the sheet is closed."""

    def __init__(self, directory: Path, limit: int, redactor: Redactor) -> None:
        """`redactor`: one per collector, because it counts."""
        self.redactor = redactor
        self.trouble = ""
        self._directory, self._left = directory, limit
        self._files: dict[str, File] = {}
        self.closed = False

    @property
    def files(self) -> tuple[File, ...]:
        """What has been written."""
        return tuple(self._files.values())

    @property
    def left(self) -> int:
        """Bytes that can still be written."""
        return self._left

    def close(self) -> None:
        """Refuse further writes: the collector's time is up."""
        self.closed = True

    def text(self, name: str, text: str) -> None:
        """Write a text; a second one of the same name replaces it."""
        self.data(name, text.encode(errors="surrogateescape"))

    def data(self, name: str, data: bytes) -> None:
        """Write bytes."""
        fitting = fit(data, self._left)
        clean = self.redactor.data(fitting)
        self._write(name, clean[: self._left], cut=len(fitting) < len(data) or len(clean) > self._left)

    def json(self, name: str, value: Any) -> None:
        """Write a value as JSON."""
        self.clean_json(name, self.redactor.value(msgspec.to_builtins(value)))

    def clean_json(self, name: str, value: Any) -> None:
        """Write a value without secrets as JSON."""
        encoded = msgspec.json.format(jsontext.readable(value), indent=1)
        self._write(name, encoded[: self._left], cut=len(encoded) > self._left)

    def _write(self, name: str, data: bytes, *, cut: bool) -> None:
        if self.closed:
            return
        draft = self._directory / f".{name}.part"
        try:
            private.write(draft, data)
            os.replace(draft, self._directory / name)  # noqa: PTH105 - both are paths already
        except OSError as error:
            self.trouble = f"{name}: {error.strerror}"
            return
        self._left -= len(data) - (self._files[name].size if name in self._files else 0)
        self._files[name] = File(name, len(data), cut)


def fit(data: bytes, limit: int) -> bytes:
    """Return the beginning of `data` that fits, in whole lines: a part of a secret would not be recognised."""
    if len(data) <= limit:
        return data
    return data[: data.rfind(b"\n", 0, limit) + 1 or max(0, limit - HALF_SECRET)]

"""What an object's own attributes became since training began: the state of callbacks and of datasets.

Only what changed is state: what stayed is configuration, and the next start of the script sets that itself
(a log folder with the date in its name, say).  Attributes that are not plain are left out.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from .encoding import NotPlain, decode, encode

LINKS = frozenset(("model", "_model", "params", "validation_data", "progbar"))


class Watched:
    """One object, and how its attributes looked when training began."""

    def __init__(self, subject: Any, limit: int | None = None) -> None:
        """`limit`: bytes of an attribute's arrays above which it counts as data (None: no limit)."""
        self.subject = subject
        self._limit = limit
        self._before = {name: print_ for name, (_, _, print_) in self._now().items()}

    def changed(self, tensors: list[Any]) -> dict[str, Any]:
        """Return {attribute: JSON} of what changed, adding arrays to `tensors`."""
        found = {}
        for name, (value, _, print_) in self._now().items():
            if self._before.get(name) != print_:
                found[name] = encode(value, tensors)
        return found

    def restore(self, state: dict[str, Any], tensors: list[Any]) -> None:
        """Set the attributes that `changed` returned."""
        for name, code in state.items():
            value = decode(code, tensors)
            held = vars(self.subject).get(name)
            if isinstance(held, list) and isinstance(value, list):
                held[:] = value  # somebody else may hold the same list
            elif isinstance(held, dict) and isinstance(value, dict):
                held.clear()
                held.update(value)
            else:
                setattr(self.subject, name, value)

    def _now(self) -> dict[str, tuple[Any, Any, str]]:
        found = {}
        for name, value in list(getattr(self.subject, "__dict__", {}).items()):
            tensors: list[Any] = []
            if name in LINKS:
                continue
            try:
                code = encode(value, tensors)
            except NotPlain:
                continue
            if self._limit is None or sum(t.nbytes for t in tensors) <= self._limit:
                found[name] = (value, code, _fingerprint(code, tensors))
        return found


def _fingerprint(code: Any, tensors: list[Any]) -> str:
    checks = [[str(t.dtype), t.shape, zlib.crc32(t.tobytes())] for t in tensors]
    return json.dumps([code, checks])

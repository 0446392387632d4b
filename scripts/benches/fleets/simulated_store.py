"""A store in memory that counts requests, and answers each as late as a bucket does."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = 1000  # names that a bucket lists in one answer


class Memory:
    """What is stored, for several views."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.children: defaultdict[str, Counter[str]] = defaultdict(Counter)  # keys below each name, by folder
        self.lock = threading.Lock()

    def write(self, key: str, data: bytes, *, exclusive: bool = False) -> bool:
        """Write, unless it is there and `exclusive`; return whether `key` has `data` now."""
        with self.lock:
            if key not in self.data:
                self._count(key, 1)
            elif exclusive:
                return self.data[key] == data
            self.data[key] = data
            return True

    def remove(self, key: str) -> None:
        with self.lock:
            found = [key] if key in self.data else [one for one in self.data if one.startswith(f"{key}/")]
            for one in found:
                del self.data[one]
                self._count(one, -1)

    def _count(self, key: str, number: int) -> None:
        folder, _, name = key.rpartition("/")
        while name:
            below = self.children[folder]
            below[name] += number
            if not below[name]:
                del below[name]
            folder, _, name = folder.rpartition("/")


class SimulatedStore:
    """Implements store.Store.  `asked`: requests so far, by kind; a list of names is one request for each PAGE."""

    url = "file:///simulated"

    def __init__(self, memory: Memory, answers: float) -> None:
        """`answers`: seconds that each request takes."""
        self._memory, self._answers = memory, answers
        self._lock = threading.Lock()
        self.asked: Counter[str] = Counter()

    def _ask(self, kind: str, requests: int = 1) -> None:
        with self._lock:
            self.asked[kind] += requests
        if self._answers:
            time.sleep(self._answers * requests)

    def create(self, key: str, data: bytes) -> bool:
        self._ask("create")
        return self._memory.write(key, data, exclusive=True)

    def replace(self, key: str, data: bytes) -> None:
        self._ask("replace")
        self._memory.write(key, data)

    def read(self, key: str) -> bytes | None:
        self._ask("read")
        return self._memory.data.get(key)

    def names(self, folder: str) -> Sequence[str]:
        with self._memory.lock:
            found = list(self._memory.children.get(folder, ()))
        self._ask("names", max(1, -(-len(found) // PAGE)))
        return found

    def versions(self, folder: str) -> Mapping[str, str]:
        with self._memory.lock:
            found = {
                name: str(hash(self._memory.data.get(f"{folder}/{name}")))
                for name in self._memory.children.get(folder, ())
            }
        self._ask("versions", max(1, -(-len(found) // PAGE)))
        return found

    def remove(self, key: str) -> None:
        self._ask("remove")
        self._memory.remove(key)

    def put(self, key: str, file: Path) -> None:
        self.replace(key, file.read_bytes())

    def get(self, key: str, file: Path) -> bool:
        data = self.read(key)
        if data is not None:
            file.write_bytes(data)
        return data is not None

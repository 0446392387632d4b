"""A store in memory, with the promises of store.Store."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict


class MemoryStore(dict):
    """What is stored, by key."""

    url = "memory://"

    def __init__(self):
        super().__init__()
        self.inside = defaultdict(Counter)  # by folder: the keys below each name in it
        self.changed = {}  # by key: which change was its last
        self._changes, self._turn = itertools.count(), threading.RLock()

    def __setitem__(self, key, data):
        with self._turn:
            if key not in self:
                self._count(key, 1)
            super().__setitem__(key, data)
            self.changed[key] = next(self._changes)

    def __delitem__(self, key):
        with self._turn:
            super().__delitem__(key)
            self._count(key, -1)

    def _count(self, key, change):
        folder, _, name = key.rpartition("/")
        while name:
            self.inside[folder][name] += change
            if not self.inside[folder][name]:
                del self.inside[folder][name]
            folder, _, name = folder.rpartition("/")

    def create(self, key, data):
        with self._turn:
            if key not in self:
                self[key] = data
            return self[key] == data

    def replace(self, key, data):
        self[key] = data

    def put(self, key, content):
        self[key] = content if isinstance(content, bytes) else content.read_bytes()

    def get(self, key, file):
        if key in self:
            file.write_bytes(self[key])
        return key in self

    def read(self, key):
        return self[key] if key in self else None  # noqa: SIM401 - `get` is that of a store

    def names(self, folder):
        with self._turn:
            return sorted(self.inside[folder])

    def versions(self, folder):
        with self._turn:
            return {name: str(self.changed.get(f"{folder}/{name}")) for name in self.inside[folder]}

    def remove(self, key):
        with self._turn:
            for name in list(self.inside[key]):
                self.remove(f"{key}/{name}")
            if key in self:
                del self[key]

    def do(self, request):
        """Do a request of joblog's steps."""
        given = () if request.data is None else (request.data,)
        return getattr(self, request.do)(request.key, *given)

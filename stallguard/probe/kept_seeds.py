"""The seeds of one process, derived from the run's: the n-th use of a source gets the same one in each attempt."""

from __future__ import annotations

from _blake2 import blake2b
from _thread import get_ident
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable, Optional

RACING = 2  # threads beside the main one: a single one takes turns with that in most scripts
WORKER = "what this process leaves unseeded is drawn anew in each attempt: it was forked, or multiprocessing started it"
THREADS = "several threads draw from unseeded generators: which of them gets which seed can change with each attempt"


class Seeds:
    """The seeds of one process.  Any thread may draw; a forked process draws nothing."""

    def __init__(self, run: str, place: str, beyond: Callable[[str], None]) -> None:
        """`run`: the run's seed.  `beyond`: called with a sentence that says what is not kept."""
        self._key = blake2b(("%s %s" % (run, place)).encode()).digest()
        self._beyond = beyond
        # Of itertools.count: its next value is taken in one step, by any thread.
        self._counts: dict[str, Any] = {}
        self._ended = False
        self._first = get_ident()
        self._threads: set[int] = set()

    def end(self) -> None:
        """Let everything be random from now on: this is a forked process."""
        self._ended = True
        self._beyond(WORKER)

    def draw(self, source: str, bits: int) -> Optional[int]:
        """Return the seed of the next use of `source`: 0 <= seed < 2**bits.  None: draw from the system."""
        if self._ended:
            return None
        thread = get_ident()
        if thread != self._first and thread not in self._threads:
            self._threads.add(thread)
            if len(self._threads) == RACING:
                self._beyond(THREADS)
        counter = self._counts.get(source) or self._counts.setdefault(source, count(1))
        return self.of(source, bits, next(counter))

    def of(self, source: str, bits: int, number: int = 0) -> int:
        """Return the seed of use `number` of `source`, without counting it; 0: none of those that `draw` returns."""
        size = (bits + 7) // 8
        data = b""
        while len(data) < size:
            text = b"%s %d %d" % (source.encode(), number, len(data))
            data += blake2b(text, key=self._key).digest()
        return int.from_bytes(data[:size], "little") >> (8 * size - bits)

    def uses(self) -> dict[str, int]:
        """Return {source: number of its next use}: a state that `resume` continues from."""
        return {source: int(repr(counter)[len("count(") : -1]) for source, counter in self._counts.items()}

    def resume(self, uses: Mapping[str, int]) -> None:
        """Continue where `uses` was read, in an earlier attempt."""
        self._counts = {source: count(number) for source, number in uses.items()}

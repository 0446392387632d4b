"""The seeds of one process, derived from the run's seed: the n-th use of a source gets the same one in each attempt."""

from __future__ import annotations

from _blake2 import blake2b
from _thread import get_ident
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable, Optional

RACING = 2  # threads beside the first: a single one mostly alternates with it in a fixed order
WORKER = "unseeded random numbers of this process differ in each attempt: it was forked, or multiprocessing started it"
THREADS = (
    "several threads draw from unseeded generators: which thread gets which seed can differ in each attempt"
)


class Seeds:
    """The seeds of one process.  Any thread can draw; a forked process gets none."""

    def __init__(self, run: str, place: str, beyond: Callable[[str], None]) -> None:
        """`run`: the run's seed.  `beyond` is called with a sentence on what is not reproduced."""
        self._key = blake2b(("%s %s" % (run, place)).encode()).digest()
        self._beyond = beyond
        # Of itertools.count: taking the next value is atomic.
        self._counts: dict[str, Any] = {}
        self._ended = False
        self._first = get_ident()
        self._threads: set[int] = set()

    def end(self) -> None:
        """Return no seeds from now on: this is a forked process."""
        self._ended = True
        self._beyond(WORKER)

    def draw(self, source: str, bits: int) -> Optional[int]:
        """Return the seed of the next use of `source`: 0 <= seed < 2**bits; None: the system provides one."""
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
        """Return the seed of use `number` of `source`, without counting it; `draw` never returns that of number 0."""
        size = (bits + 7) // 8
        data = b""
        while len(data) < size:
            text = b"%s %d %d" % (source.encode(), number, len(data))
            data += blake2b(text, key=self._key).digest()
        return int.from_bytes(data[:size], "little") >> (8 * size - bits)

    def uses(self) -> dict[str, int]:
        """Return {source: number of its next use}, for `resume`."""
        return {source: int(repr(counter)[len("count(") : -1]) for source, counter in self._counts.items()}

    def resume(self, uses: Mapping[str, int]) -> None:
        """Continue from `uses`, which an earlier attempt read."""
        self._counts = {source: count(number) for source, number in uses.items()}

"""Makes the unseeded random numbers of a script the same in each attempt of a run.

Most scripts seed nothing.  A restarted attempt would then draw another split of the data, another order, other labels,
and the model would continue with data that it must not see.  So an attempt gets the seed of its run (settings.seed),
each process derives its own seed from that and from its place (process_key.py), and each source that would get a seed
from the operating system gets the next one derived from it: the n-th use of a source in this attempt gets the same seed
as the n-th use in the next.

    the run's seed -> the process' key -> (source, number of its use) -> bits, by BLAKE2b

Reproduced: Python's `random`, numpy's legacy generator, `default_rng` and bit generators, torch's default generators,
TensorFlow's eager operations and generators (frameworks/), and with these the default seeds of Keras on any backend.
The hash seed is set in the environment: an interpreter reads it before any code runs.

Not changed:
- what the script seeds itself; secrets, uuid, os.urandom, ssl and SystemRandom stay random;
- forked processes and workers of multiprocessing: with one seed several would draw the same augmentation;
- random operations in a graph (tf.function, Dataset.map): with TensorFlow's global seed Keras 3 would shuffle every
  epoch in the same order, and every augmentation would repeat each epoch (measured on TensorFlow 2.21).  The hello
  names these instead.

This module is loaded at the start of each process of a run: standard library only, Python 3.9 grammar, no costly
import.
"""

from __future__ import annotations

import os
import sys
from _blake2 import blake2b
from _thread import get_ident
from itertools import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Callable, Optional

VARIABLE = "PYTHONHASHSEED"
NO_PLACE = "unseeded random numbers of this process differ in each attempt: it cannot be distinguished from others"
HASHES = "the order of sets of strings can differ in each attempt: PYTHONHASHSEED is %s in this process"
# Part of the command line of a worker: multiprocessing's spawn and forkserver, joblib's loky.
WORKERS = ("--multiprocessing-fork", "from multiprocessing.", "loky.backend.", "joblib.externals.loky.backend.")
RACING = 2  # threads beside the first: a single one mostly alternates with it in a fixed order
WORKER = "unseeded random numbers of this process differ in each attempt: it was forked, or multiprocessing started it"
THREADS = "several threads draw from unseeded generators: which thread gets which seed can differ in each attempt"


def begin(context: Any) -> Any:
    """Set the seeds of this process in `context`; return None if it gets none."""
    environment: Any = context.environment
    hash_seed = environment.get(VARIABLE) or "not set"
    if hash_seed == context.settings.hash_seed:
        # Hidden from this process only, because a script can start itself again with a hash seed of its own if none is
        # set: it is removed from `os.environ`, but not from the environment that child processes inherit.
        own = getattr(environment, "_data", None)  # of os.environ, without unsetenv()
        if own is not None:
            own.pop(environment.encodekey(VARIABLE), None)
    elif not hash_seed.isdecimal():
        context.beyond(HASHES % hash_seed)
    obstacle = "" if context.place else NO_PLACE
    if any(word.startswith(WORKERS) for word in getattr(sys, "orig_argv", sys.argv)):
        obstacle = WORKER
    if obstacle:
        context.beyond(obstacle)
        return None
    context.seeds = seeds = Seeds(context.settings.seed, context.place, context.beyond)
    os.register_at_fork(after_in_child=seeds.end)
    return context


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

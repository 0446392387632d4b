"""Keeps what a script leaves unseeded the same in each attempt of a run.

Most scripts seed nothing.  A restarted attempt then draws another split of the data, another order, other labels, and
the model goes on with data that it must not see.  So an attempt gets the seed of its run (STALLGUARD_SEED), each
process derives its own from that and its place (place.py), and whatever would ask the operating system for a seed gets
the next one derived from it: the n-th use of a source in this attempt is the n-th use in the next.

    the run's seed -> the process' key -> (source, number of its use) -> bits, by BLAKE2b

What is kept: Python's `random`, numpy's legacy generator, `default_rng` and bit generators (generators.py), torch's
default generators (generators.py), TensorFlow's eager operations and generators (eager.py), and with these the default
seeds of Keras on any backend.  The hash seed is in the environment: an interpreter reads it before any code runs.

What stays random on purpose:
- what the script seeds itself stays its own, and secrets, uuid, os.urandom, ssl and SystemRandom stay random;
- forked processes and workers of multiprocessing: several with one seed would draw the same augmentation;
- random operations in a graph (tf.function, Dataset.map): TensorFlow's global seed would make Keras 3 shuffle every
  epoch alike and every augmentation repeat each epoch (measured on TensorFlow 2.21).  These are said instead.

This module is loaded at the start of each process of a run: standard library only, Python 3.9 grammar, nothing that
costs; the other modules of the package are loaded when the first library that they patch is imported.
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

    from ..context import Context, Targets

RACING = 2  # threads beside the main one: a single one takes turns with that in most scripts
VARIABLE = "PYTHONHASHSEED"
NO_PLACE = (
    "what the script leaves unseeded is drawn anew in each attempt: this process cannot be told from others"
)
WORKER = "what this process leaves unseeded is drawn anew in each attempt: it was forked, or multiprocessing started it"
HASHES = "the order of sets of strings can change with each attempt: PYTHONHASHSEED is %s in this process"
THREADS = "several threads draw from unseeded generators: which of them gets which seed can change with each attempt"
# Part of the command line of a worker: multiprocessing's spawn and forkserver, joblib's loky.
WORKERS = (
    "--multiprocessing-fork",
    "from multiprocessing.",
    "loky.backend.",
    "joblib.externals.loky.backend.",
)
PATCHES = {  # module that a script may import: (module of this package, function)
    "random": ("generators", "patch_random"),
    "numpy.random.bit_generator": ("generators", "patch_numpy"),
    "numpy.random._bit_generator": ("generators", "patch_numpy"),  # numpy before 1.20
    "torch": ("generators", "patch_torch"),
    "tensorflow.python.ops.gen_random_ops": ("eager", "patch_operations"),
    "tensorflow.python.ops.stateful_random_ops": ("eager", "patch_generators"),
}


def targets(context: Context) -> Targets:
    """Return {module name: patch(module)}, and give `context` the seeds of this process."""
    _watch_hashes(context)
    obstacle = "" if context.place else NO_PLACE
    if any(word.startswith(WORKERS) for word in getattr(sys, "orig_argv", sys.argv)):
        obstacle = WORKER
    if obstacle:
        context.beyond(obstacle)
        return {}
    context.seeds = seeds = Seeds(context.environment["STALLGUARD_SEED"], context.place, context.beyond)
    os.register_at_fork(after_in_child=seeds.end)
    return {name: _lazily(context, seeds, *patch) for name, patch in PATCHES.items()}


def _lazily(context: Context, seeds: Seeds, part: str, name: str) -> Callable[[Any], None]:
    def patch(module: Any) -> None:
        loaded = __import__("%s.%s" % (__name__, part), fromlist=[name])
        getattr(loaded, name)(context, seeds, module)

    return patch


def _watch_hashes(context: Context) -> None:
    """Hide the hash seed that the supervisor set, from this process only; say if hashes are not kept.

    A script may start itself again with a hash seed of its own if it sees none.  The variable leaves `os.environ`, not
    the environment that the processes started from here inherit.
    """
    environment: Any = context.environment
    present = environment.get(VARIABLE) or "not set"
    if present == environment.get("STALLGUARD_HASHSEED"):
        own = getattr(environment, "_data", None)  # of os.environ, without unsetenv()
        if own is not None:
            own.pop(environment.encodekey(VARIABLE), None)
    elif not present.isdigit():
        context.beyond(HASHES % present)


class Seeds:
    """The seeds of one process.  Any thread may draw; a forked process draws nothing."""

    def __init__(self, run: str, place: str, beyond: Callable[[str], None]) -> None:
        """`run`: the run's seed.  `beyond`: called with a sentence that says what is not kept."""
        self._key = blake2b(("%s %s" % (run, place)).encode()).digest()
        self._beyond = beyond
        self._counts: dict[
            str, Any
        ] = {}  # itertools.count: its next value is taken in one step, by any thread
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

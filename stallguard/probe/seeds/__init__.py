"""Makes the unseeded random numbers of a script the same in each attempt of a run.

Most scripts seed nothing.  A restarted attempt would then draw another split of the data, another order, other labels,
and the model would continue with data that it must not see.  So an attempt gets the seed of its run (settings.seed),
each process derives its own seed from that and from its place (process_key.py), and each source that would get a seed
from the operating system gets the next one derived from it: the n-th use of a source in this attempt gets the same seed
as the n-th use in the next.

    the run's seed -> the process' key -> (source, number of its use) -> bits, by BLAKE2b

Reproduced: Python's `random`, numpy's legacy generator, `default_rng` and bit generators, torch's default generators
(library_generators.py), TensorFlow's eager operations and generators (eager.py), and with these the default seeds of
Keras on any backend.  The hash seed is set in the environment: an interpreter reads it before any code runs.

Not changed:
- what the script seeds itself; secrets, uuid, os.urandom, ssl and SystemRandom stay random;
- forked processes and workers of multiprocessing: with one seed several would draw the same augmentation;
- random operations in a graph (tf.function, Dataset.map): with TensorFlow's global seed Keras 3 would shuffle every
  epoch in the same order, and every augmentation would repeat each epoch (measured on TensorFlow 2.21).  The hello
  names these instead.

This module is loaded at the start of each process of a run: standard library only, Python 3.9 grammar, no costly
import.  The other modules of the package are loaded when the first library that they patch is imported.
"""

from __future__ import annotations

import os
import sys

from ..kept_seeds import WORKER, Seeds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context, Targets

VARIABLE = "PYTHONHASHSEED"
NO_PLACE = (
    "unseeded random numbers of this process differ in each attempt: it cannot be distinguished from others"
)
HASHES = "the order of sets of strings can differ in each attempt: PYTHONHASHSEED is %s in this process"
# Part of the command line of a worker: multiprocessing's spawn and forkserver, joblib's loky.
WORKERS = (
    "--multiprocessing-fork",
    "from multiprocessing.",
    "loky.backend.",
    "joblib.externals.loky.backend.",
)
PATCHES = {  # module that a script can import: (module of this package, function)
    "random": ("library_generators", "patch_random"),
    "numpy.random.bit_generator": ("library_generators", "patch_numpy"),
    "numpy.random._bit_generator": ("library_generators", "patch_numpy"),  # numpy before 1.20
    "torch": ("library_generators", "patch_torch"),
    "tensorflow.python.ops.gen_random_ops": ("eager", "patch_operations"),
    "tensorflow.python.ops.stateful_random_ops": ("eager", "patch_generators"),
}


def targets(context: Context) -> Targets:
    """Return {module name: patch(module)}, and set the seeds of this process in `context`."""
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
        return {}
    context.seeds = seeds = Seeds(context.settings.seed, context.place, context.beyond)
    os.register_at_fork(after_in_child=seeds.end)
    return {name: _lazily(context, seeds, *patch) for name, patch in PATCHES.items()}


def _lazily(context: Context, seeds: Seeds, part: str, name: str) -> Callable[[Any], None]:
    def patch(module: Any) -> None:
        loaded = __import__("%s.%s" % (__name__, part), fromlist=[name])
        getattr(loaded, name)(context, seeds, module)

    return patch

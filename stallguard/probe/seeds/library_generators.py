"""The generators of Python, numpy and torch: each asks for a seed in one place, and gets a kept one there.

Nothing else changes: the classes, their signatures and what a given seed makes of them stay as they are.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing costs milliseconds, and `random` is imported by programs that train nothing
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context
    from ..kept_seeds import Seeds

BITS = 256  # of a seed for Python's Mersenne Twister; it takes any number
# They make names with a generator of their own that must be unique on this machine, after a restart too:
# temporary files and semaphores; cache files of Hugging Face datasets; experiments of DVC; symbols of sympy.
UNIQUE = frozenset(("tempfile", "datasets.fingerprint", "dvc.repo.experiments.utils", "sympy.core.symbol"))


def patch_random(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed `random` and each `random.Random()`; SystemRandom has a `seed` of its own that does nothing."""

    def make(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: Any = 2) -> Any:
            if a is None and _caller(module) not in UNIQUE:
                a = seeds.draw("random", BITS)
            return original(self, a, version)

        return seed

    if context.wrap(module.Random, "seed", make):
        module.seed = module._inst.seed  # bound before the wrapper was there
        module.seed()


def _caller(module: Any) -> Any:
    """Return the name of the module that makes or seeds a generator of `module`."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals is vars(module):
        frame = frame.f_back
    return None if frame is None else frame.f_globals.get("__name__")


def patch_numpy(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed what numpy seeds by SeedSequence(): `default_rng()`, bit generators, RandomState(), `numpy.random.*`.

    The global RandomState is made after this module is imported, so it is seeded by the same function.
    """

    def make(original: Any) -> Any:
        def randbits(k: int) -> Any:
            drawn = seeds.draw("numpy", k)
            return original(k) if drawn is None else drawn

        return randbits

    if context.wrap(module, "randbits", make) and "numpy.random.mtrand" in sys.modules:
        sys.modules["numpy.random.mtrand"].seed()  # numpy was here before us


def patch_torch(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the default generators: of the processor now, of a GPU when it has one."""

    def make(original: Any) -> Any:
        def seed() -> Any:
            drawn = seeds.draw("torch", 63)
            if drawn is None:
                return original()
            module.manual_seed(drawn)
            return drawn

        return seed

    drawn = seeds.draw("torch", 63)
    if drawn is None:  # imported in a forked process
        return
    module.default_generator.manual_seed(drawn)
    for owner in (module.random, module):
        context.wrap(owner, "seed", make)
    if hasattr(module.cuda, "_lazy_seed_tracker"):
        _seed_cuda(seeds, module.cuda)
    if getattr(module._C, "_has_mps", False) and hasattr(module, "mps"):
        _seed_metal(context, seeds, module)


def _seed_cuda(seeds: Seeds, cuda: Any) -> None:
    """Seed the generator of each CUDA device once CUDA starts; a seed that the script gives by then comes after."""

    def seed_devices() -> None:
        for number in range(cuda.device_count()):
            drawn = seeds.draw("torch.cuda.%d" % number, 63)
            if drawn is not None:
                cuda.default_generators[number].manual_seed(drawn)

    cuda._lazy_call(seed_devices, seed_all=True)


def _seed_metal(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the generator of a Mac's GPU after the first module is moved there, if nobody asked for it before.

    Not earlier: asking for it starts Metal, which must not be used on both sides of a fork.
    """
    waiting = [True]

    def make(original: Any) -> Any:
        def to(self: Any, *args: Any, **named: Any) -> Any:
            moved = original(self, *args, **named)
            if waiting and any(one.device.type == "mps" for one in self.parameters()):
                waiting.clear()
                try:
                    drawn = seeds.draw("torch.mps", 63)
                    if drawn is not None and module.mps._default_mps_generator is None:
                        module.mps.manual_seed(drawn)
                except Exception as error:
                    context.surprise("seeding the GPU of a Mac", error)
            return moved

        return to

    context.wrap(module.nn.Module, "to", make)

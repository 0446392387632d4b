"""Seeds the generators of Python, numpy and torch at the one place where each gets a seed from the operating system.

The classes, their signatures, and the numbers that follow from a given seed do not change.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing costs milliseconds, and programs that do not train import `random` too
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context
    from ..kept_seeds import Seeds

BITS = 256  # of a seed for Python's Mersenne Twister; it takes any number
# Modules with a generator of their own for names that must be unique on this machine, also after a restart: temporary
# files and semaphores; cache files of Hugging Face datasets; experiments of DVC; symbols of sympy.
UNIQUE = frozenset(("tempfile", "datasets.fingerprint", "dvc.repo.experiments.utils", "sympy.core.symbol"))


def patch_random(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed `random` and each `random.Random()`; SystemRandom has a `seed` of its own that does nothing."""

    def make(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: Any = 2) -> Any:
            if a is None:
                # Of the module that creates or seeds the generator; 1 is the frame around each wrapper (own_frames.py).
                caller: Any = sys._getframe(2)
                while caller is not None and caller.f_globals is vars(module):
                    caller = caller.f_back
                if caller is None or caller.f_globals.get("__name__") not in UNIQUE:
                    a = seeds.draw("random", BITS)
            return original(self, a, version)

        return seed

    if context.wrap(module.Random, "seed", make):
        module.seed = module._inst.seed  # it was bound before the method was wrapped
        module.seed()


def patch_numpy(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the users of SeedSequence(): `default_rng()`, bit generators, RandomState(), `numpy.random.*`.

    The global RandomState is created after this module is imported, so the same function seeds it.
    """

    def make(original: Any) -> Any:
        def randbits(k: int) -> Any:
            drawn = seeds.draw("numpy", k)
            return original(k) if drawn is None else drawn

        return randbits

    if context.wrap(module, "randbits", make) and "numpy.random.mtrand" in sys.modules:
        sys.modules["numpy.random.mtrand"].seed()  # numpy was imported before the probe


def patch_torch(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the default generators: the CPU's now, a GPU's when it is created."""

    def make(original: Any) -> Any:
        def seed() -> Any:
            drawn = seeds.draw("torch", 63)
            if drawn is None:
                return original()
            module.manual_seed(drawn)
            return drawn

        return seed

    def seed_cuda() -> None:
        for number in range(module.cuda.device_count()):
            drawn = seeds.draw("torch.cuda.%d" % number, 63)
            if drawn is not None:
                module.cuda.default_generators[number].manual_seed(drawn)

    drawn = seeds.draw("torch", 63)
    if drawn is None:  # imported in a forked process
        return
    module.default_generator.manual_seed(drawn)
    for owner in (module.random, module):
        context.wrap(owner, "seed", make)
    if hasattr(module.cuda, "_lazy_seed_tracker"):
        # Called when CUDA starts; seeds that the script set before are applied later.
        module.cuda._lazy_call(seed_cuda, seed_all=True)
    if getattr(module._C, "_has_mps", False) and hasattr(module, "mps"):
        _seed_metal(context, seeds, module)


def _seed_metal(context: Context, seeds: Seeds, module: Any) -> None:
    """Seed the generator of a Mac's GPU after the first module is moved there, if it was not used before.

    Not earlier: its first use starts Metal, which must not be used on both sides of a fork.
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

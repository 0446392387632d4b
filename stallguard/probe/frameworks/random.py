"""Python's own generators: `random` and each `random.Random()`."""

from __future__ import annotations

import sys

from ..libraries import Library

TYPE_CHECKING = False  # typing costs milliseconds, and programs that do not train import `random` too
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context

BITS = 256  # of a seed for Python's Mersenne Twister; it takes any number
# Modules with a generator of their own for names that must be unique on this machine, also after a restart: temporary
# files and semaphores; cache files of Hugging Face datasets; experiments of DVC; symbols of sympy.
UNIQUE = frozenset(("tempfile", "datasets.fingerprint", "dvc.repo.experiments.utils", "sympy.core.symbol"))


def seed_generators(context: Context, module: Any) -> None:
    """Seed `random` and each `random.Random()`; SystemRandom has a `seed` of its own that does nothing."""

    def make(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: Any = 2) -> Any:
            if a is None:
                # Of the module that creates or seeds the generator; 1 is the frame around each wrapper (patches.py).
                caller: Any = sys._getframe(2)
                while caller is not None and caller.f_globals is vars(module):
                    caller = caller.f_back
                if caller is None or caller.f_globals.get("__name__") not in UNIQUE:
                    a = context.draw("random", BITS)
            return original(self, a, version)

        return seed

    if context.wrap(module.Random, "seed", make):
        module.seed = module._inst.seed  # it was bound before the method was wrapped
        module.seed()


def _state() -> Any:
    return sys.modules["random"].getstate()


def _set_state(state: Any) -> None:
    sys.modules["random"].setstate((state[0], tuple(state[1]), state[2]))


def _state_of(value: Any) -> Any:
    random = sys.modules["random"]
    return None if isinstance(value, random.SystemRandom) else value.getstate()


def _with_state(kind: str, state: Any, existing: Any) -> Any:
    if existing is None and kind != "Random":
        raise LookupError("no generator of the kind %s can be made" % kind)
    made = sys.modules["random"].Random(0) if existing is None else existing
    made.setstate((state[0], tuple(state[1]), state[2]))
    return made


LIBRARY = Library(
    "random",
    patches={"seeds": {"random": seed_generators}},
    stateless=("SystemRandom",),
    generators={"python": (_state, _set_state)},
    own_generators=(_state_of, _with_state),
)

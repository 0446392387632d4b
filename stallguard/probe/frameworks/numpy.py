"""numpy: the seeds of its generators, at the one place where each gets one from the operating system.

The classes, their signatures, and the numbers that follow from a given seed do not change.
"""

from __future__ import annotations

import sys

from ..libraries import Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..context import Context


def seed_generators(context: Context, module: Any) -> None:
    """Seed the users of SeedSequence(): `default_rng()`, bit generators, RandomState(), `numpy.random.*`.

    The global RandomState is created after this module is imported, so the same function seeds it.
    """

    def make(original: Any) -> Any:
        def randbits(k: int) -> Any:
            drawn = context.draw("numpy", k)
            return original(k) if drawn is None else drawn

        return randbits

    if context.wrap(module, "randbits", make) and "numpy.random.mtrand" in sys.modules:
        sys.modules["numpy.random.mtrand"].seed()  # numpy was imported before the probe


def _state() -> Any:
    random = sys.modules.get("numpy.random")
    return random.get_state() if random else None


def _set_state(state: Any) -> None:
    random = sys.modules.get("numpy.random")
    if random:
        random.set_state(tuple(state))


LIBRARY = Library(
    "numpy",
    computes=True,
    distributions=("numpy",),
    patches={
        "seeds": {
            "numpy.random.bit_generator": seed_generators,
            "numpy.random._bit_generator": seed_generators,  # numpy before 1.20
        }
    },
    generators={"numpy": (_state, _set_state)},
)

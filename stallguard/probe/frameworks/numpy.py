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


_SEEDS = "seeds"  # what further generators are spawned from


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


def _state_of(value: Any) -> Any:
    random = sys.modules.get("numpy.random")
    if random is None:
        return None
    if isinstance(value, random.RandomState):
        return value.get_state()
    if not isinstance(value, (random.Generator, random.BitGenerator)):
        return None
    bits = getattr(value, "bit_generator", value)
    seeds = _seeds_of(bits)
    return {**bits.state, _SEEDS: None if seeds is None else seeds.state}


def _seeds_of(bits: Any) -> Any:
    """Return what further generators are spawned from, None if that cannot be made again."""
    found = getattr(bits, "seed_seq", None)
    return found if type(found) is sys.modules["numpy.random"].SeedSequence else None


def _with_state(kind: str, state: Any, existing: Any) -> Any:
    random, seeds, made = sys.modules["numpy.random"], None, existing
    if isinstance(state, dict):
        state = dict(state)
        seeds = state.pop(_SEEDS, None)
    if seeds is not None:
        seeds = random.SeedSequence(**{**seeds, "spawn_key": tuple(seeds["spawn_key"])})
    if made is None:
        made = _class(state["bit_generator"] if kind == "Generator" else kind)(0 if seeds is None else seeds)
        made = random.Generator(made) if kind == "Generator" else made
    if isinstance(made, random.RandomState):
        made.set_state(tuple(state))
        return made
    bits = getattr(made, "bit_generator", made)
    existing_seeds = _seeds_of(bits)
    if seeds is not None and existing_seeds is not None and repr(existing_seeds.state) != repr(seeds.state):
        try:
            bits.__setstate__((state, seeds))
        except (TypeError, ValueError):  # numpy 1 cannot replace them; their count of generators can grow
            existing_seeds.spawn(max(0, seeds.n_children_spawned - existing_seeds.n_children_spawned))
    bits.state = state
    return made


def _class(kind: Any) -> Any:
    """Return a generator's class of numpy.random; nothing else of that module: a checkpoint only names it."""
    random = sys.modules["numpy.random"]
    found = getattr(random, kind, None) if isinstance(kind, str) else None
    if isinstance(found, type) and issubclass(found, (random.BitGenerator, random.RandomState)):
        return found
    raise LookupError("no generator of the kind %s can be made" % kind)


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
    own_generators=(_state_of, _with_state),
)

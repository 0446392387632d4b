"""A case: a small training, the stateful things in it, and the instants at which it is killed; as text, its SPEC.

    torch/3x6/arrays/20/deque@callback,array.array@global/batch0.41,save0.73

backend / epochs x batches / kind of data / seed / things at places / kills, each at a share of what an attempt does:
of its moments (batch), of the file operations of its saves (save), or of its time (time).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from .things import Thing

PIPELINE = "pipeline"
PLACES = (
    "callback", "nested", "class", "model", "layer", "closure", "global", "default", PIPELINE,
)  # fmt: skip
DATA = {  # kinds of data, by backend; those of functions of the script can hold things
    "tensorflow": ("arrays", "shuffled", "generator", "pydataset", "tfdata", "from_generator"),
    "torch": ("arrays", "shuffled", "generator", "pydataset", "loader"),
    "jax": ("arrays", "shuffled", "generator", "pydataset"),
}
WITHOUT_FUNCTION = ("arrays", "shuffled")
KILLS = ("batch", "save", "time")
ROUND = 1000  # cases that hypothesis draws in one test


class Case(NamedTuple):
    """One training.  `things`: (name, place); `kills`: (of what, share)."""

    backend: str
    epochs: int
    steps: int
    data: str
    seed: int
    things: tuple[tuple[str, str], ...]
    kills: tuple[tuple[str, float], ...]

    def spec(self) -> str:
        """Return the case as one word."""
        things = ",".join(f"{name}@{place}" for name, place in self.things)
        kills = ",".join(f"{kind}{share:.3f}" for kind, share in self.kills)
        return f"{self.backend}/{self.epochs}x{self.steps}/{self.data}/{self.seed}/{things or '-'}/{kills or '-'}"


def parsed(spec: str) -> Case:
    """Return the case of a SPEC.  Raises ValueError."""
    backend, size, data, seed, things, kills = spec.strip().split("/")
    epochs, steps = map(int, size.split("x"))
    pairs = [(*one.rpartition("@")[::2],) for one in things.split(",") if one != "-"]
    moments = [(one.rstrip("0123456789."), one) for one in kills.split(",") if one != "-"]
    return Case(
        backend, epochs, steps, data, int(seed), tuple((str(name), str(place)) for name, place in pairs),
        tuple((kind, float(one[len(kind) :])) for kind, one in moments),
    )  # fmt: skip


def drawn(
    backend: str, things: Mapping[str, Thing], count: int, seed: int, most: int = 4, *, alone: bool = True
) -> Iterator[Case]:
    """Yield cases: each thing at each place alone first (`alone`), then up to `most` of them at once.

    The things of the later cases come in rounds, so that each pair of a thing and a place is as frequent as another.
    """
    pairs = list(itertools.product(things, PLACES))
    order = random.Random(f"{seed} {backend}")
    order.shuffle(pairs)
    queue: Iterator[tuple[str, str]] = iter(pairs)

    def taken(number: int) -> tuple[tuple[str, str], ...]:
        nonlocal queue
        found: dict[str, str] = {}
        while len(found) < number:
            pair = next(queue, None)
            if pair is None:
                order.shuffle(pairs)
                queue = iter(pairs)
            elif pair[0] not in found:
                found[pair[0]] = pair[1]
        return tuple(found.items())

    for number, start in enumerate(range(0, count, ROUND)):
        shapes = _shapes(backend, min(ROUND, count - start), f"{seed} {number}", most)
        for at, (shape, many) in enumerate(shapes, start):
            held = taken(1 if alone and at < len(pairs) else many)
            data = shape.data
            if any(place == PIPELINE for _, place in held) and data in WITHOUT_FUNCTION:
                functions = [one for one in DATA[backend] if one not in WITHOUT_FUNCTION]
                data = functions[at % len(functions)]
            yield shape._replace(things=held, data=data)


def _shapes(backend: str, count: int, seed: str, most: int) -> list[tuple[Case, int]]:
    """Return trainings without things, drawn by hypothesis, and how many things each is to have."""
    share = st.floats(0.02, 0.98).map(lambda value: round(value, 3))
    shapes = st.builds(
        Case, st.just(backend), st.integers(2, 4), st.integers(3, 8), st.sampled_from(DATA[backend]),
        st.integers(0, 999), st.just(()),
        st.lists(st.tuples(st.sampled_from(KILLS), share), min_size=1, max_size=3).map(tuple),
    )  # fmt: skip
    found: list[tuple[Case, int]] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(shapes, st.integers(1, most))
    def draw(shape: Case, many: int) -> None:
        found.append((shape, many))

    draw()
    return list(itertools.islice(itertools.cycle(found), count))

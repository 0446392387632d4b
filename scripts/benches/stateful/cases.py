"""A case: a small training, the stateful things in it, and the instants at which it is killed; as text, its SPEC.

    torch/3x6/arrays/20/deque@callback,array.array@global/batch0.41,save0.73

backend / epochs x batches / kind of data / seed / things at places / kills, each at a share of what an attempt does:
of its moments (batch), of the file operations of its saves (save), or of its time (time).
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed
from hypothesis import strategies as st

from .loops import LOOPS, TRACKED
from .things import Thing

PIPELINE = "pipeline"
VALIDATION = "validation"  # a callback that changes its thing at each batch of a validation
PLACES = (
    "callback", "nested", "class", "model", "layer", "closure", "global", "default", PIPELINE, VALIDATION,
)  # fmt: skip
DATA = {  # kinds of data, by backend; those of functions of the script can hold things
    "tensorflow": ("arrays", "shuffled", "generator", "pydataset", "tfdata", "from_generator"),
    "torch": ("arrays", "shuffled", "generator", "pydataset", "loader"),
    "jax": ("arrays", "shuffled", "generator", "pydataset"),
    **dict.fromkeys(LOOPS, ("arrays", "shuffled", "loader", "loader-shuffled")),
}
HANDED = "handed"  # to stallguard.track, which keeps that and nothing else
PLACES_OF = {**dict.fromkeys(DATA, PLACES), **dict.fromkeys(TRACKED, (HANDED, "model", "layer"))}
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
    pairs = list(itertools.product(things, PLACES_OF[backend]))
    order = random.Random(f"{seed} {backend}")
    order.shuffle(pairs)
    queue = deque(pairs)

    def taken(number: int) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        later: list[tuple[str, str]] = []
        while len(found) < number:
            if not queue:
                order.shuffle(pairs)
                queue.extend(pairs)
            name, place = queue.popleft()
            if name in found:
                later.append((name, place))
            else:
                found[name] = place
        queue.extendleft(reversed(later))
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
    found: list[tuple[Case, int]] = []

    @hypothesis_seed(seed)
    @settings(
        max_examples=count, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    # One integer a case: of several, hypothesis copies some from one draw to the next.
    @given(st.randoms(use_true_random=True))
    def draw(chance: random.Random) -> None:
        kills = [
            (chance.choice(KILLS), round(chance.uniform(0.02, 0.98), 3)) for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        shape = Case(
            backend, chance.randint(2, 4), chance.randint(3, 8), chance.choice(DATA[backend]), chance.randint(0, 999),
            (), tuple(kills),
        )  # fmt: skip
        found.append((shape, chance.randint(1, most)))

    draw()
    return list(itertools.islice(itertools.cycle(found), count))

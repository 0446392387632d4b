"""The cells of the matrix: what a real training can be and what can happen to it, and arrays that cover combinations.

A cell is one value of each dimension, written as `loop=keras,what=lock,...`.  `covering` returns cells that contain
every possible combination of two (or three) values at least once; the seed decides which cells.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

from compat import VERSIONS, interpreter

ROOT = Path(__file__).resolve().parents[3]

COMPLETIONS = 30  # random cells of which the best is taken
FEW = 3000  # combinations: of more the first is taken, a random choice takes too long

STALLS = ("lock", "native-lock", "interpreter", "sleep", "spin", "native-spin", "socket", "fifo", "worker")
CRASHES = ("crash", "kill")
PASSING = ("nan", "slow", "nothing", "stop")  # what a training goes on with
FITS = ("keras", "keras-jax", "keras-torch", "keras2")
MEANS = ("mean-accelerate", "mean-mlx")  # loops that say what their loss is
# docs/frameworks.md, and train_on_batch with Keras' own train_step.
HALVED = (*FITS, "batches", "trainer", "lightning", "mlx-lm", *MEANS)
VALIDATES = (*FITS, "batches", "trainer", "lightning", "mlx-lm")  # loops whose validation is known as one
# docs/loss.md: a loop by hand, and a GradientTape loop, show no loss.
# docs/frameworks.md, "resumed exactly".
RESUMED = (*FITS, "trainer", "lightning", "mlx-lm", "track-torch", "track-mlx", *MEANS)
LOSS_KNOWN = (*HALVED, "torch", "track-torch", "mlx", "track-mlx")

DIMENSIONS: dict[str, tuple[str, ...]] = {
    "loop": (
        *HALVED, "tape", "torch", "track-torch", "mlx", "track-mlx", "jax",
        *(f"beat-{version}" for version in VERSIONS),
    ),
    "what": (*STALLS, *CRASHES, "memory", "error", *PASSING),
    "where": (
        "import", "start", "tracing", "first", "step", "callback", "validation", "epoch-end", "save", "input", "exit",
    ),
    "again": ("once", "twice", "always", "resumed", "half", "quarter"),
    "setting": ("default", "halve", "restart", "stop", "observe", "patience"),
    "library": ("installed", "pythonpath", "clone"),
    "checkpoints": ("on", "off"),
    "census": ("on", "off"),
    "tree": ("direct", "launcher", "shell"),
    "output": ("silent", "printing"),
}  # fmt: skip


class Cell(NamedTuple):
    """One value of each dimension."""

    loop: str
    what: str
    where: str
    again: str
    setting: str
    library: str
    checkpoints: str
    census: str
    tree: str
    output: str

    @property
    def spec(self) -> str:
        """Return what --cell takes."""
        return ",".join(f"{name}={value}" for name, value in zip(self._fields, self, strict=True))

    @property
    def kind(self) -> str:
        """Return the loop without its Python."""
        return self.loop.partition("-3.")[0]


def parsed(spec: str) -> Cell:
    """Return the cell of a spec; what it leaves out has the first value.  Raises SystemExit with what is wrong."""
    given = dict(part.partition("=")[::2] for part in spec.split(","))
    for name, value in given.items():
        if name not in DIMENSIONS:
            sys.exit(f"bench matrix: no dimension {name!r}; there are {', '.join(DIMENSIONS)}")
        if value not in DIMENSIONS[name]:
            sys.exit(f"bench matrix: {name} cannot be {value!r}; it can be {', '.join(DIMENSIONS[name])}")
    cell = Cell(**{name: given.get(name, values[0]) for name, values in DIMENSIONS.items()})
    if not possible(cell._asdict()):
        sys.exit(f"bench matrix: {cell.spec} cannot be")
    return cell


@cache
def python_of(loop: str) -> Path | None:
    """Return the Python that trains in such a loop; None if it is not on this machine."""
    own = Path(sys.executable)
    if loop.startswith("beat-"):
        version = loop.removeprefix("beat-")
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            return own
        found = interpreter(version)
        return Path(found) if found else None
    needs, environment = {
        "keras-jax": (("keras", "jax"), "jax"), "keras-torch": (("keras", "torch"), "torch"),
        "torch": (("torch",), "torch"), "track-torch": (("torch",), "torch"), "keras2": ((), "keras2"),
        "trainer": (("transformers",), "hf"), "lightning": (("lightning",), "hf"),
        "mlx": (("mlx",), "mlx"), "track-mlx": (("mlx",), "mlx"), "mean-mlx": (("mlx",), "mlx"),
        "mlx-lm": (("mlx_lm",), "mlx"), "mean-accelerate": (("accelerate",), "hf"), "jax": (("jax", "optax"), "jax"),
    }.get(loop, (("keras", "tensorflow"), ""))  # fmt: skip
    if needs and all(importlib.util.find_spec(name) for name in needs):
        return own
    place = ROOT / ".venvs" / environment / "bin/python"
    return place if environment and place.exists() else None


def possible(cell: Mapping[str, str]) -> bool:
    """Return whether these values can go together; dimensions that are missing can have any value."""
    loop, what = cell.get("loop", "").partition("-3.")[0], cell.get("what", "")
    where, again = cell.get("where", ""), cell.get("again", "")
    passing = what in PASSING or what == "error"
    rules = (
        not (what in ("nan", "slow", "nothing") and where not in ("", "step")),
        not (what == "nan" and loop not in ("", *LOSS_KNOWN)),
        not (passing and again not in ("", "once")),
        not (where == "tracing" and loop not in ("", "keras", "keras2", "keras-jax", "batches", "tape", "jax")),
        # docs/detection.md: a loop by hand is watched from outside only until it calls stallguard.
        not (loop == "beat" and where in ("import", "start", "first")),
        not (where == "validation" and loop not in ("", *VALIDATES)),
        not (where == "save" and loop not in ("", "keras", "keras-jax", "keras-torch")),
        # What the interpreter does with an exception at its exit is its own.
        not (where == "exit" and (what not in ("", *STALLS) or again not in ("", "once"))),
        not (again in ("half", "quarter") and (loop == "beat" or where not in ("", "step"))),
        not (again in ("half", "quarter") and what not in ("", "lock", "native-lock", "sleep", "memory")),
        # Keras wraps what its tracing raises.
        not (where == "tracing" and what in ("memory", "error")),
        not (again == "resumed" and loop == "beat" and where not in ("", "callback")),
        not (again == "resumed" and (where not in ("", "step", "callback", "input") or what == "memory")),
        not (cell.get("setting") == "observe" and again not in ("", "once")),
        not (loop == "beat" and cell.get("library", "installed") != "installed"),  # it needs none
    )
    return all(rules)


@cache
def covering(strength: int, seed: int) -> list[Cell]:
    """Return cells of this machine's environments that cover all combinations of `strength` values.

    Greedy: each cell begins with a combination that is not covered yet; of some random completions the one that covers
    most others is taken.  allpairspy ends early for three values if many combinations cannot be.
    """
    drawn = random.Random(seed)
    values = dict(DIMENSIONS) | {"loop": tuple(loop for loop in DIMENSIONS["loop"] if loop not in missing())}
    open_ones = {
        tuple(zip(names, chosen, strict=True)): None
        for names in combinations(values, strength)
        for chosen in product(*(values[name] for name in names))
        if _completed(dict(zip(names, chosen, strict=True)), values, drawn)
    }
    cells = []
    while open_ones:
        start = drawn.choice(list(open_ones)) if len(open_ones) < FEW else next(iter(open_ones))
        tried = [_completed(dict(start), values, drawn) for _ in range(COMPLETIONS)]
        best = max(filter(None, tried), key=lambda cell: sum(one in open_ones for one in _parts(cell, strength)))
        for one in _parts(best, strength):
            open_ones.pop(one, None)
        cells.append(best)
    return cells


def _completed(begun: dict[str, str], values: Mapping[str, Sequence[str]], drawn: random.Random) -> Cell | None:
    """Return a possible cell with the values of `begun` and random others; None if there is none."""
    if not possible(begun):
        return None
    name = next((name for name in values if name not in begun), "")
    if not name:
        return Cell(**begun)
    for value in drawn.sample(values[name], len(values[name])):
        if (found := _completed(begun | {name: value}, values, drawn)) is not None:
            return found
    return None


def _parts(cell: Cell, strength: int) -> Iterator[tuple[tuple[str, str], ...]]:
    return combinations(zip(Cell._fields, cell, strict=True), strength)


def missing() -> list[str]:
    """Return the loops that this machine has no environment for."""
    return [loop for loop in DIMENSIONS["loop"] if python_of(loop) is None]


def pairs(cells: Sequence[Cell]) -> int:
    """Return how many combinations of two values the cells contain."""
    return len({pair for cell in cells for pair in _parts(cell, 2)})

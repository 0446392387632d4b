"""A sweep: one command with several parameters, as a list of jobs.

    name = "rates"                              # the jobs_of_sweep are rates-001, rates-002, ...
    command = ["train.py", "--epochs", "20"]    # {rate} in a word is replaced; a parameter that is in no word
    needs = ["metal"]                           #   becomes an option: --rate 0.1
    priority = 0
    method = "grid"                             # each combination; "list": the first values, the second, ...;
    # method = "random", runs = 20, seed = 7    #   "random": so many different combinations
    options = ["--max-restarts", "3"]           # of stallguard run
    [parameters]
    rate = [0.1, 0.01]
    rows = [32, 64]

Numbers and order of the jobs depend on the file alone, so a sweep that is submitted again adds only what is missing.
Must not read files.
"""

from __future__ import annotations

import itertools
import random
import re
import tomllib
from collections.abc import Mapping, Sequence

import msgspec

from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.jobs import submitting
from stallguard.fleet.jobs.submitting import Wish
from stallguard.fleet.store.orders import JOB_NAME

GRID, LIST, RANDOM = "grid", "list", "random"
MOST = 10_000  # jobs_of_sweep: more are a mistake in the file
DIGITS = 3
Value = str | int | float | bool


class SweepFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a sweep file."""

    name: str
    command: list[str]
    parameters: dict[str, list[Value]]
    needs: list[str] = []
    priority: int = 0
    method: str = GRID
    runs: int = 0
    seed: int = 0
    options: list[str] = []
    environment: dict[str, str] = {}


def jobs_of_sweep(text: str, path: str) -> list[Wish]:
    """Return the jobs of a sweep file.  `path`: for errors.  Raises StallguardError."""
    try:
        sweep = msgspec.convert(tomllib.loads(text), SweepFile)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from error
    _check(sweep, path)
    needs, found = submitting.needs(sweep.needs), combinations(sweep, path)
    digits = max(DIGITS, len(str(len(found))))
    return [
        Wish(
            f"{sweep.name}-{number:0{digits}}", words(sweep.command, chosen), tuple(sweep.options), needs,
            sweep.priority, sweep.environment, sweep.name,
        )
        for number, chosen in enumerate(found, start=1)
    ]  # fmt: skip


def combinations(sweep: SweepFile, path: str = "") -> list[dict[str, Value]]:
    """Return the values of each job, in order.  Raises StallguardError."""
    names, values = list(sweep.parameters), list(sweep.parameters.values())
    if sweep.method == LIST:
        lengths = {len(one) for one in values}
        if len(lengths) > 1:
            raise _wrong(path, f"a list takes as many values of each parameter; here: {sorted(lengths)}")
        return [dict(zip(names, one, strict=True)) for one in zip(*values, strict=True)]
    total = 1
    for one in values:
        total *= len(one)
    if total > MOST and sweep.method == GRID:
        raise _wrong(
            path, f'it has {total} combinations; {MOST} are the most: method = "random" takes some of them'
        )
    if sweep.method == GRID:
        return [dict(zip(names, one, strict=True)) for one in itertools.product(*values)]
    shuffled = random.Random(sweep.seed)  # noqa: S311 - no secret
    chosen = shuffled.sample(range(total), min(sweep.runs, total))
    return [_combination(number, names, values) for number in chosen]


def words(command: Sequence[str], chosen: Mapping[str, Value]) -> tuple[str, ...]:
    """Return a command with the values of one job: in place of {name}, else as options --name VALUE."""
    # All at once: a value that looks like the place of another parameter stays as it is.
    places = re.compile("|".join(re.escape(f"{{{name}}}") for name in chosen))
    made = [places.sub(lambda place: _text(chosen[place[0][1:-1]]), word) for word in command]
    for name, value in chosen.items():
        if not any(f"{{{name}}}" in word for word in command):
            made += [f"--{name}", _text(value)]
    return tuple(made)


def _combination(number: int, names: Sequence[str], values: Sequence[Sequence[Value]]) -> dict[str, Value]:
    """Return the combination of that number in the order of the grid."""
    found: dict[str, Value] = {}
    for name, one in zip(reversed(names), reversed(values), strict=True):
        number, place = divmod(number, len(one))
        found[name] = one[place]
    return {name: found[name] for name in names}


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(sweep: SweepFile, path: str) -> None:
    if not JOB_NAME.fullmatch(sweep.name):
        raise _wrong(path, f"name = {sweep.name!r}: letters, digits, dots, dashes and underscores")
    if not sweep.command:
        raise _wrong(path, "command is empty")
    if sweep.method not in (GRID, LIST, RANDOM):
        raise _wrong(path, f"method = {sweep.method!r}: grid, list or random")
    if empty := [name for name, values in sweep.parameters.items() if not values]:
        raise _wrong(path, f"the parameter {empty[0]} has no values")
    if not sweep.parameters:
        raise _wrong(path, "there are no parameters")
    if sweep.method == RANDOM and not 0 < sweep.runs <= MOST:
        raise _wrong(path, f"runs = {sweep.runs}: a random sweep needs 1 to {MOST}")


def _wrong(path: str, why: str) -> StallguardError:
    return StallguardError(f"{path} is not a sweep", why=why, cure="docs/fleet.md has one", code=USAGE)

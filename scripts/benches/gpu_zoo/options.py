"""What every part of the bench `gpu` gets and gives: options, results as JSON objects, tables and goals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness.results import Goal

Result = dict[str, Any]  # what JSON can hold; "part" names the part that it is of
RESULTS = "results.jsonl"
_WRITING = threading.Lock()


class Options(NamedTuple):
    """What the user asked for."""

    minutes: float
    gpus: tuple[int, ...]  # none: the CPU, which only shows that the bench itself works
    seed: int
    cases: str  # a regular expression that a case's name must contain
    repeat: int
    each: int  # cases at the same time on one GPU
    out: Path
    ends_at: float  # time.monotonic() at which nothing of the bench runs any more

    @property
    def left(self) -> float:
        """Seconds until all must be over."""
        return self.ends_at - time.monotonic()


class Part(NamedTuple):
    """A part.  `run` calls `keep` for each result as soon as it has it, and returns all of them."""

    run: Callable[[Options], list[Result]]
    table: Callable[[Sequence[Result]], str]
    goals: Callable[[Sequence[Result]], list[Goal]]


def keep(options: Options, result: Result) -> Result:
    """Append a result to the file of all, so that the end of the bench loses nothing; return it."""
    with _WRITING, (options.out / RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    return result


def kept(files: Sequence[Path]) -> list[Result]:
    """Return the results of such files."""
    return [json.loads(line) for file in files for line in file.read_text("utf-8").splitlines() if line]

"""The verdict on a cell: same, said, silent, or a crash.  It depends only on what two runs wrote.

same     each result equals that of the plain run; in slices, within 1e-5 of its size
said     results differ, and stallguard reported it before the first step of the continued training
SILENT   results differ, the exit code is 0, and no message reports it in time; or slices were requested, and no
         message says whether batches were cut; or a killed training began again in spite of a checkpoint after each
         batch, and no message says why
CRASH    no end, or an exit code or errors on standard error that the plain run does not have
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from . import statements
from .runs import Attempt, Ran, Results

SAME, SAID, SILENT, CRASH, NOT_REACHED = "same", "said", "SILENT", "CRASH", "not reached"
CLOSE = 1e-5  # in slices, relative to the largest number of an array
TINY = 1e-7  # in slices, absolute, for numbers around zero
_ERROR = re.compile(r"Traceback|Error\b|Exception|Warning:")
# What a launcher prints about the training that the bench killed; it prints the same without stallguard.
_OF_THE_KILL = re.compile(r"^Traceback .*\n(?: .*\n)+\S.*died with <Signals\.SIGKILL.*\n", re.MULTILINE)
_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-f.]+p[-+]\d+|\d+\.\d+(?:e[-+]?\d+)?|\d+e[-+]?\d+)", re.IGNORECASE)
LEAST_TRAINED = 4  # batches before a kill, after which there are checkpoints, with one after each batch
FROM_THE_BEGINNING = "it began again, and nothing says why"
_SHOWN = 3  # differing results named in a detail


class Verdict(NamedTuple):
    """The verdict on a cell.  `lines`: what differs, or was reported, in full."""

    kind: str
    detail: str = ""
    lines: tuple[str, ...] = ()


def differences(wanted: Ran, expected: Results, made: Ran, actual: Results, close: bool = False) -> list[str]:
    """Return a line for each result that differs from the plain run's.  `close`: float rounding is allowed."""
    found = []
    for name in {**expected, **actual}:
        if name not in actual:
            found.append(f"{name}: missing")
        elif name not in expected:
            found.append(f"{name}: not shown by the plain run")
        elif expected[name] != actual[name]:
            difference = _difference(expected[name], actual[name], wanted, made)
            if not close or not difference <= CLOSE:
                found.append(
                    f"{name}: apart by {difference:.1e}; {_short(expected[name])} became {_short(actual[name])}"
                )
    return found


def _difference(one: Any, other: Any, of_one: Ran, of_other: Ran) -> float:
    """Return the relative difference of two encoded values; infinity if anything but numbers differs."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        if "float" in one:
            return _relative(np.array(float.fromhex(one["float"])), np.array(float.fromhex(other["float"])))
        if "array" in one:
            if one == other:
                return 0.0
            paths = of_one.array(one["array"]), of_other.array(other["array"])
            arrays = [np.load(path) if path.exists() else np.array(math.nan) for path in paths]
            return _relative(*arrays)
        return max((_difference(one[key], other[key], of_one, of_other) for key in one), default=0.0)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return max((_difference(a, b, of_one, of_other) for a, b in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, str) and isinstance(other, str) and _NUMBER.sub("#", one) == _NUMBER.sub("#", other):
        numbers = [np.array([_read(word) for word in _NUMBER.findall(text)]) for text in (one, other)]
        return _relative(*numbers) if numbers[0].size else 0.0
    return 0.0 if one == other else math.inf


def _read(word: str) -> float:
    return float.fromhex(word) if "x" in word.lower() else float(word)


def _relative(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Return the largest difference of two arrays, relative to the largest number of `one`."""
    if one.shape != other.shape:
        return math.inf
    if np.array_equal(one, other, equal_nan=True) or not one.size:
        return 0.0
    apart = float(np.abs(np.asarray(one, float) - np.asarray(other, float)).max())
    size = float(np.abs(np.asarray(one, float)).max())
    return 0.0 if apart <= TINY else apart / size if size else math.inf


def _short(code: Any) -> str:
    """Return an encoded value as text for a line, at most 200 characters."""
    if isinstance(code, dict) and set(code) == {"float"}:
        return f"{float.fromhex(code['float']):.9g}"
    if isinstance(code, dict) and "array" in code:
        return str(code["array"])
    text = "[" + ", ".join(map(_short, code)) + "]" if isinstance(code, list) else str(code)
    if isinstance(code, dict):
        text = "{" + ", ".join(f"{key}: {_short(value)}" for key, value in code.items()) + "}"
    return text if len(text) <= 200 else text[:200] + "..."


def crash(made: Ran, plain: Ran, error: str) -> Verdict | None:
    """Return the verdict on a run that did not end as the plain run did, None if it did.

    `error`: of the script itself, which the run must end with; empty: none.
    """
    if made.code is None:
        return Verdict(CRASH, "it did not end")
    if error and made.code != 0 and error in made.err:
        return Verdict(SAME, f"it ended with its own error: {error}")
    printed = _OF_THE_KILL.sub("", made.err)
    ours = [_without_numbers(line) for line in printed.splitlines() if not line.startswith("stallguard: ")]
    known = {_without_numbers(line) for line in plain.err.splitlines()}
    new = tuple(line for line in ours if _ERROR.search(line) and line not in known)
    if made.code != plain.code:
        return Verdict(CRASH, f"exit code {made.code} instead of {plain.code}: {new[-1] if new else 'no words'}", new)
    if new:
        return Verdict(CRASH, f"standard error has a line that the plain run's lacks: {new[0]}", new)
    return None


def _without_numbers(line: str) -> str:
    return re.sub(r"\d+", "#", line.strip())


def compared(wrong: list[str], made: Ran, *, sliced: bool = False) -> Verdict:
    """Return the verdict on a run.  `wrong`: the lines of `differences`.  `sliced`: it was continued in slices."""
    unanswered = statements.without_word_of_slices(made.directory) if sliced else []
    if unanswered:
        detail = f"attempt {unanswered[0]} was asked for slices; nothing says whether batches were cut or whole"
        return Verdict(SILENT, detail, tuple(wrong))
    if not wrong:
        said = [one.text for one in statements.all_in(made.directory) if one.kind == statements.INEXACT]
        # Exact results in spite of a warning, for example after starting over.
        return Verdict(SAME, "; ".join(said))
    names = [line.partition(": apart")[0] for line in wrong]
    detail = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    run = made.directory
    spoken = statements.counting(statements.all_in(run), sliced=sliced)
    if run is None or not spoken:
        return Verdict(SILENT, detail, tuple(wrong))
    in_time = [one for one in spoken if _before_a_fit(one, made)]
    if not in_time:
        late = [f"said only after the first step: {one.text}" for one in spoken]
        return Verdict(SILENT, f"{detail}; {late[0]}", (*wrong, *late))
    report = statements.report_of(run, made.folder / "home")
    places = {one.text: statements.lacking(one, made.err, report) for one in in_time}
    everywhere = [text for text, lacking in places.items() if not lacking]
    if everywhere:
        return Verdict(SAID, everywhere[0], (*wrong, *everywhere))
    text, lacking = next(iter(places.items()))
    return Verdict(SILENT, f"{detail}; not said {lacking}: {text}", tuple(wrong))


def from_the_beginning(made: Ran, role: str) -> str:
    """Return the complaint that a killed training began again although checkpoints were due, and nothing says why.

    "" if it did not.  `role`: of the process that was killed.
    """
    first, second = ([batch[1:4] for batch in attempt.batches if batch.role == role] for attempt in made.attempts[:2])
    if len(first) < LEAST_TRAINED or not second or second[0] != first[0]:
        return ""
    said = [one for one in statements.all_in(made.directory) if statements.of_a_resume(one)]
    return "" if said else FROM_THE_BEGINNING


def _before_a_fit(one: statements.Statement, made: Ran) -> bool:
    """Return whether a sentence was reported between two fits, or before the first batch of the last attempt."""
    batches = sorted(made.last.batches, key=lambda batch: batch.time)
    before = [batch for batch in batches if batch.time < one.at]
    after = [batch for batch in batches if batch.time >= one.at]
    return not before or (bool(after) and before[-1][:2] != after[0][:2])


def draws(attempts: list[Attempt]) -> list[str]:
    """Return a line for each random draw that the attempts of a run do not share."""
    found = []
    for number, attempt in enumerate(attempts[1:], 2):
        for name, value in attempt.drawn.items():
            first = next((one.drawn[name] for one in attempts if name in one.drawn), value)
            if value != first:
                found.append(f"draw {name}: {_short(first)} became {_short(value)} in attempt {number}")
    return found

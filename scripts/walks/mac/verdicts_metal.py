"""What was seen of fits on Metal: resumed ones, sliced ones.

Must not ask anything.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mac.table import Row, judged, unknown

# How much farther a resumed fit can be from an undisturbed one than undisturbed ones are from each other: the largest
# of five differences is above the largest of two by chance.
CHANCE = 4.0
ROUNDING = 1e-4  # of the largest weight: what the order of additions changes in float32 (scripts/bench microbatch)


class Apart(NamedTuple):
    """How far the weights of two fits are apart.  `absolute`: the largest; `relative`: of the largest weight."""

    differ: int
    total: int
    absolute: float
    relative: float

    def __str__(self) -> str:
        """The difference in words."""
        if not self.differ:
            return "bit-equal"
        return f"{self.differ} of {self.total} weights differ, by {self.absolute:.1e} at most ({self.relative:.1e})"


def apart(first: bytes, other: bytes) -> Apart:
    """Compare two fits, whose weights are given as float32.  Weights that are no numbers are infinitely far apart."""
    count = max(len(first), len(other)) // 4
    if first == other:
        return Apart(0, count, 0.0, 0.0)
    ours, theirs = array("f", first), array("f", other)
    if len(ours) != len(theirs):
        return Apart(count, count, math.inf, math.inf)
    gaps = [abs(a - b) for a, b in zip(ours, theirs, strict=True)]
    largest = max(map(abs, ours))
    if not all(map(math.isfinite, gaps)):
        return Apart(count, count, math.inf, math.inf)
    # Different bits of the same number (0.0 and -0.0) are a difference too.
    differ = sum(first[at : at + 4] != other[at : at + 4] for at in range(0, len(first), 4))
    return Apart(differ, count, max(gaps), max(gaps) / largest if largest else math.inf)


class Resumed(NamedTuple):
    """A fit that was killed after a batch.

    `starts`: the first batch of each attempt; `apart`: from an undisturbed one, None if it did not end.
    """

    killed: int
    starts: Sequence[int]
    code: int | None
    apart: Apart | None


class Sliced(NamedTuple):
    """A fit in so many slices.

    `apart`: from the first whole one, None if it did not end; `peak`: bytes, None if it is not readable.
    """

    factor: int
    apart: Apart | None
    peak: int | None


def repeats(pair: str, same: Sequence[Apart | None]) -> Row:
    """Whether undisturbed fits end the same, to the bit: what a resume can be judged by."""
    check, expected = f"fits on Metal repeat themselves ({pair})", "undisturbed fits are equal to the bit"
    ended = [one for one in same if one is not None]
    if len(ended) < len(same) or not ended:
        return judged(check, holds=False, figure=f"{len(ended)} of {len(same)} ended", means=expected,
                      otherwise="an undisturbed fit did not end")  # fmt: skip
    figure = "; ".join(map(str, ended))
    if any(one.differ for one in ended):
        why = "Metal computes otherwise each time: a resume is judged by the distance of undisturbed fits"
        return unknown(check, why, figure, expected)
    return judged(check, holds=True, figure=figure, means=expected)


def resume(pair: str, same: Sequence[Apart | None], resumed: Sequence[Resumed]) -> Row:
    """Whether killed fits end as undisturbed ones: to the bit, or as near as these are to each other."""
    check, expected = f"resume on Metal ({pair})", "a killed fit ends as an undisturbed one"
    kills = ", ".join(f"{one.killed}" for one in resumed)
    figure = f"killed after batch {kills}: "
    unended = [one for one in resumed if one.apart is None or one.code != 0]
    if unended or not resumed:
        codes = ", ".join(f"after batch {one.killed} exit code {one.code}" for one in unended)
        return judged(check, holds=False, figure=figure + (codes or "none"), means=expected,
                      otherwise="a killed fit did not come to its end")  # fmt: skip
    if again := [one for one in resumed if len(one.starts) != 2 or not 0 < one.starts[1] <= one.killed + 1]:  # noqa: PLR2004
        seen = "; ".join(f"attempts began at {', '.join(map(str, one.starts))}" for one in again)
        return judged(check, holds=False, figure=figure + seen, means=expected,
                      otherwise="it was not resumed from a checkpoint before the kill")  # fmt: skip
    differences = [one.apart for one in resumed if one.apart is not None]
    worst = max(differences, key=lambda one: one.absolute)
    limit = CHANCE * max((one.absolute for one in same if one is not None), default=0.0)
    equal = sum(not one.differ for one in differences)
    figure += f"{equal} of {len(differences)} bit-equal" + (f"; {worst}" if worst.differ else "")
    if equal == len(differences):
        return judged(check, holds=True, figure=figure, means=expected)
    means = f"it ends as near to an undisturbed one as these are to each other (limit {limit:.1e})"
    return judged(check, worst.absolute <= limit, figure, means,
                  f"a resumed fit ends otherwise than an undisturbed one (limit {limit:.1e})")  # fmt: skip


def slices(pair: str, seen: Sequence[Sliced]) -> Iterator[Row]:
    """Whether slices compute what the whole batch does, and need less memory.  The first two are whole batches."""
    check, expected = f"slices on Metal ({pair})", "a batch in slices trains as the whole one, but for rounding"
    unended = [str(one.factor) for one in seen if one.apart is None]
    if unended:
        yield judged(check, holds=False, figure=f"did not end: {', '.join(unended)} slices", means=expected)
        return
    whole, *rest = seen
    ended = [(one.factor, one.apart) for one in rest if one.apart is not None]
    noise = max((one.relative for factor, one in ended if factor == 1), default=0.0)
    limit = max(ROUNDING, CHANCE * noise)
    figure = "; ".join(f"{factor} slices: {one}" if factor > 1 else f"whole again: {one}" for factor, one in ended)
    yield judged(check, all(one.relative <= limit for _, one in ended), figure, expected,
                 f"farther apart than {limit:.0e} of the largest weight: the remedy changes the training")  # fmt: skip
    memory, expected = f"memory of slices ({pair})", "4 slices need less memory than the whole batch"
    peaks = [one.peak for one in seen if one.peak is not None]
    if len(peaks) < len(seen):
        yield unknown(memory, "the footprint of the training cannot be read", expected=expected)
        return
    figure = ", ".join(f"{one.factor}: {(one.peak or 0) / 1e6:.0f} MB" for one in seen)
    yield judged(memory, peaks[-1] < peaks[0], figure, expected, "slices are no remedy for a lack of memory here")
    del whole

"""What the documents claim of macOS, and which of it a walk held or refuted.

tests/live/claims.toml has each claim with its proofs; `walk:NAME` is the row NAME of a walk, in which * stands for any
letters.  A claim is refuted if one of its rows did not hold, held if all that there are held, and else unknown.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from mac.table import FAILED, HELD, Row

WALK = "walk:"
REFUTED, UNKNOWN = "refuted", "unknown"
WIDTH = 100  # letters of a claim in the table


class Unreadable(Exception):
    """The file of claims is not as it must be; the text says why."""


class Claim(NamedTuple):
    """A sentence of the documents.  `proof`: test:, recording:, walk:, or nothing."""

    text: str
    where: str
    proof: tuple[str, ...]


class Judged(NamedTuple):
    """A claim after a walk.  `rows`: those that decide, with what was seen."""

    claim: Claim
    verdict: str
    rows: tuple[str, ...]


def read(path: Path) -> list[Claim]:
    """Return the claims; none if there is no such file.  Raises Unreadable."""
    try:
        entries = tomllib.loads(path.read_text()).get("claim", []) if path.exists() else []
        return [Claim(str(one["text"]), str(one["where"]), tuple(map(str, one["proof"]))) for one in entries]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Unreadable(f"{path} has no claims that can be read: {type(error).__name__}: {error}") from error


def judged(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Judged]:
    """Return each claim that a walk can prove, with its verdict: those that were refuted first."""
    found = []
    for claim in claims:
        names = [proof.removeprefix(WALK) for proof in claim.proof if proof.startswith(WALK)]
        if not names:
            continue
        mine = [row for row in rows if any(fnmatchcase(row.check, name) for name in names)]
        missing = [name for name in names if not any(fnmatchcase(row.check, name) for row in mine)]
        verdicts = {row.verdict for row in mine}
        verdict = REFUTED if FAILED in verdicts else HELD if verdicts == {HELD} and not missing else UNKNOWN
        deciding = [row for row in mine if row.verdict == FAILED] or mine
        said = [f"{row.check}: {row.figure or row.means or row.verdict}" for row in deciding]
        found.append(Judged(claim, verdict, (*said, *(f"{name}: no such row" for name in missing))))
    order = (REFUTED, UNKNOWN, HELD)
    return sorted(found, key=lambda one: order.index(one.verdict))


def lines(found: Sequence[Judged]) -> list[str]:
    """Return the table as lines of text, with its sums."""
    if not found:
        return ["no claim of the documents names a row of a walk"]
    told = []
    for one in found:
        text = one.claim.text if len(one.claim.text) <= WIDTH else one.claim.text[: WIDTH - 1] + "…"
        told.append(f"{one.verdict:8}{one.claim.where}: {text}")
        told += [f"{'':8}  {_printable(row)}" for row in one.rows]
    sums = ", ".join(
        f"{sum(one.verdict == verdict for one in found)} {verdict}" for verdict in (HELD, REFUTED, UNKNOWN)
    )
    return [*told, f"{len(found)} claims that a walk can prove: {sums}"]


def _printable(text: str) -> str:
    """Return a zip's text without what would steer the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[: 2 * WIDTH]

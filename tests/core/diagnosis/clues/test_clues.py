"""The names of clues, and their sentences."""

from __future__ import annotations

from stallguard.core.diagnosis import diagnose
from stallguard.core.diagnosis.patterns import PATTERNS


def test_the_names_of_clues_are_unique() -> None:
    assert all(clue.name == name for name, clue in diagnose.CLUES.items())
    rows = [(*row.requires, *row.proofs, *row.supports, *row.against, *row.excludes) for row in PATTERNS]
    assert all(diagnose.CLUES[clue.name] is clue for row in rows for clue in row)

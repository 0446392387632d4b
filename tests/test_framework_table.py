"""Each cell of the table in docs/frameworks.md has tests behind it, and each that says nothing has none."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = ("counted", "phases", "loss", "judged", "resumed", "smaller")


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "frameworks.md").read_text("utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert all(word in head for word, head in zip(COLUMNS, table[0][1:], strict=True))
    return table[2:]


def test_each_cell_has_tests_behind_it():
    trainings = tomllib.loads((ROOT / "tests" / "frameworks.toml").read_text("utf-8"))["training"]
    assert [row[0].startswith(one["name"]) for row, one in zip(rows(), trainings, strict=True)].count(False) == 0
    for (_, *cells), training in zip(rows(), trainings, strict=True):
        said = {column for column, cell in zip(COLUMNS, cells, strict=True) if cell != "-"}
        assert said == set(training) - {"name"}, training["name"]


def test_the_tests_are_there():
    trainings = tomllib.loads((ROOT / "tests" / "frameworks.toml").read_text("utf-8"))["training"]
    for test in [test for one in trainings for column in COLUMNS for test in one.get(column, [])]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test

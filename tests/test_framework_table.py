"""Each cell of the tables in docs/frameworks.md has tests behind it, and each that says nothing has none."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
COLUMNS = ("counted", "phases", "loss", "judged", "resumed", "smaller", "without")


def tables() -> list[list[list[str]]]:
    """Return the rows of the table of trainings and of that of reports."""
    lines = (ROOT / "docs" / "frameworks.md").read_text("utf-8").splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert all(word in head for word, head in zip(COLUMNS, found[0][1:], strict=True))
    second = found.index(["report", "now"])
    return [found[2:second], found[second + 2 :]]


def named() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads((ROOT / "tests" / "frameworks.toml").read_text("utf-8"))


def test_each_cell_has_tests_behind_it():
    rows, trainings = tables()[0], named()["training"]
    assert [row[0].startswith(one["name"]) for row, one in zip(rows, trainings, strict=True)].count(False) == 0
    for (_, *cells), training in zip(rows, trainings, strict=True):
        said = {column for column, cell in zip(COLUMNS, cells, strict=True) if cell != "-"}
        assert said == set(training) - {"name"}, training["name"]


def test_each_report_that_is_solved_or_in_part_has_tests_behind_it():
    for (report, now), one in zip(tables()[1], named()["report"], strict=True):
        assert report.partition(":")[0].startswith(one["name"])
        assert now.split()[0] in ("solved", "in", "no"), report
        assert bool(one["tests"]) == (now != "no"), report


def test_the_tests_are_there():
    known = named()
    tests = [test for one in known["training"] for column in COLUMNS for test in one.get(column, [])]
    for test in tests + [test for one in known["report"] for test in one["tests"]]:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test

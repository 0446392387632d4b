"""Each row of the bench `chaos` names the guard that keeps its promise, and fails without it."""

from __future__ import annotations

import ast
import tempfile
from pathlib import Path

import pytest
from chaos_faults import guardless
from chaos_faults.guardless import GUARDS, NO_GUARD
from chaos_faults.stage import living
from chaos_faults.table import FAULTS

PACKAGE = Path(__file__).parents[1] / "stallguard"
BY_NAME = {fault.name: fault for fault in FAULTS}


@pytest.fixture
def folder():
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sgc-", dir="/tmp") as made:
        yield Path(made)


def test_each_fault_has_either_a_guard_or_a_reason_for_none() -> None:
    assert set(GUARDS) | set(NO_GUARD) == set(BY_NAME)
    assert not set(GUARDS) & set(NO_GUARD)
    assert len(NO_GUARD) <= 10
    assert all(GUARDS.values())
    assert all(len(reason.split()) >= 5 for reason in NO_GUARD.values())


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_is_in_its_file_once_and_python_is_left_without_it(name: str) -> None:
    texts = {change.file: (PACKAGE / change.file).read_text() for change in GUARDS[name]}
    for change in GUARDS[name]:
        assert texts[change.file].count(change.old) == 1, change
        assert change.new != change.old
        texts[change.file] = texts[change.file].replace(change.old, change.new)
    for text in texts.values():
        ast.parse(text)


@pytest.mark.live
def test_the_copy_is_what_runs(folder: Path) -> None:
    guardless.check_copy(folder)


@pytest.mark.live
def test_a_fault_without_its_guard_breaks_the_promise_and_with_it_keeps_it(folder: Path) -> None:
    fault = BY_NAME["umask-000"]
    result = guardless.removed(fault)
    assert result.noticed is True
    assert "open to others" in result.seen
    whole = guardless.changed_copy(folder / "p", ())
    assert guardless.limited(fault, folder / "s", whole, 120.0) == ("nothing is open to others", True)


@pytest.mark.live
def test_a_row_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    whole = guardless.changed_copy(folder / "p", ())
    seen, kept = guardless.limited(BY_NAME["both-stopped"], folder / "s", whole, 4.0)
    assert (seen, kept) == ("no end within 4 s", False)
    assert living(folder / "s") == []

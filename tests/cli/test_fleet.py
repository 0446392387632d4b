"""`stallguard fleet` refuses options that contradict each other, and shows a machine by what it offers and trains."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stallguard.cli.fleet import _lines, command
from stallguard.errors import USAGE, StallguardError
from stallguard.fleet.machines.machine_list import FleetMachine
from stallguard.fleet.store.orders import WorkerCard


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["init"], "a fleet needs a store"),
        (["init", "--renew", "--scheduler", "studio"], "--renew keeps store, scheduler and name"),
        (["worker", "--memory", "much"], "'much' is not a size"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(words, says):
    with pytest.raises(StallguardError, match=says) as refused:
        CliRunner().invoke(command, words, catch_exceptions=False)

    assert refused.value.code == USAGE


def test_a_machine_is_a_line_of_what_it_is_and_lines_of_what_it_does():
    card = WorkerCard(
        schema=1, host="mini", at="", state="busy", resources={"slots": 2.0}, jobs=("night",), about={"chip": "M4"},
        versions={"stallguard": "1"},
    )  # fmt: skip
    first, *more = _lines(FleetMachine(host="mini", state="busy", seen=65.0, why="", card=card))

    assert first.split()[:6] == ["mini", "busy", "1", "min", "5", "s"]
    assert "M4" in first
    assert [line.strip() for line in more] == ["trains night", "stallguard 1"]
    assert _lines(FleetMachine(host="gone", state="gone", seen=None, why="no card", card=None))[1].strip() == "no card"

"""A number from outside is one of 64 bits in plain digits, or none; a longer one must not end what reads it."""

from __future__ import annotations

import pytest

from stallguard.core import advisories
from stallguard.core.actions import Announce
from stallguard.core.events import Launched, ProbeNote
from stallguard.core.ledger import Ledger, after
from stallguard.core.text import whole_number
from tests.simulation.simulation import Simulation

LONG = "1" * 5000  # `int` raises ValueError from 4301 digits on


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0), ("007", 7), (b"18446744073709551615", 2**64 - 1), ("", None), (None, None), ("-1", None),
        ("1.5", None), (" 1", None), ("1_000", None),
        ("\u0661", None), ("\u00b2", None), (LONG, None), pytest.param(LONG.encode(), None, id="long bytes"),
    ],
)  # fmt: skip
def test_only_plain_digits_are_a_number(text: str | bytes | None, number: int | None) -> None:
    assert whole_number(text) == number


def test_a_note_with_thousands_of_digits_does_not_end_the_supervisor() -> None:
    world = Simulation()
    world.train(20)
    for kind in ("micro", "data", "save"):
        facts = {"factor": LONG, "rows": LONG, "pid": LONG}
        world.feed(ProbeNote(at=world.now, attempt=1, kind=kind, text="x", facts=facts))
    world.train(20)

    assert advisories.noted_slices(ProbeNote(at=1.0, attempt=1, kind="micro", text="x", facts={"factor": LONG})) is None
    stalled = after(
        after(Ledger(since=0.0), 0.0, Launched(at=0.0, attempt=1, pid=7)),
        9.0,
        Announce("training.stalled", {"pid": LONG}),
    )
    assert stalled.subject == 0

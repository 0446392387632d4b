"""What the page of a program shows that its last record does not have."""

from __future__ import annotations

import pytest

from stallguard.probe import wire
from stallguard.supervisor.heartbeats import with_last_batches

SENT = dict.fromkeys(wire.FIELDS, 0) | {
    "fits": 1, "epoch": 2, "beats": 225, "fit_beats": 225, "batch": 25, "batches": 100,
    "source": wire.SOURCES.index("callbacks"),
}  # fmt: skip


def test_the_position_in_fit_and_epoch_is_that_of_the_batches_that_were_counted_last() -> None:
    page = with_last_batches({**SENT, "beats": 231}, SENT)

    assert (page["fit_beats"], page["batch"]) == (231, 31)


def test_the_batches_of_an_epoch_that_began_since_are_counted_from_its_begin() -> None:
    page = with_last_batches({**SENT, "epoch": 3, "fit_beats": 300, "batch": 0, "beats": 301}, SENT)

    assert (page["fit_beats"], page["batch"]) == (301, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"beats": 231, "fit_beats": 231, "batch": 31},  # derived already
        {"beats": 231, "fits": 2, "fit_beats": 0, "batch": -1},
        {"beats": 300, "epoch": 3, "fit_beats": 300, "batch": 0},
        {"beats": 231, "source": wire.SOURCES.index("torch")},  # a loop of the script's own, after the fit
        {"beats": 231, "batch": -1},
    ],
)
def test_a_record_of_another_position_stays_as_it_is(other: dict[str, int]) -> None:
    assert with_last_batches({**SENT, **other}, SENT) == {**SENT, **other}

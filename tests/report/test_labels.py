"""What a row of a report says."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

from stallguard.report import attempt_rows, document, labels
from tests.report.nights import night


def test_an_attempt_is_resumed_only_if_it_was_given_a_checkpoint():
    begun = [
        labels.attempts(SimpleNamespace(attempts=[attempt_rows.AttemptRow(number=number, began=0.0, resumed=resumed)]))[
            0
        ][0]
        for number, resumed in ((1, False), (2, True), (2, False))
    ]
    assert begun == ["1", "2, resumed", "2, from scratch"]


def test_evidence_that_is_there_is_one_line_and_what_is_not_has_its_reason(tmp_path):
    made = document.make(night(tmp_path, minutes=6, stalls=1), {}, dt.UTC)
    (collected, names), *rest = labels.kept(made.incidents[0].evidence)

    assert collected == "collected"
    assert names.startswith("stacks (0.2 s), native (0.2 s), ")
    assert rest == [("system-log", "late: it did not end in time")]

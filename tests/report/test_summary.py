"""The sums of a run and its story are those of its journal."""

from __future__ import annotations

import msgspec
import pytest

from stallguard.core.actions import Announce
from stallguard.report import summary
from tests.report.test_incidents import END, LOCK, STALL, announced, heartbeat, read


def test_the_sums_tell_training_from_starting_and_from_silence(tmp_path):
    known, tries, troubles = read(tmp_path, *STALL, *END)
    sums = summary.totals(known, tries, troubles)

    assert {name: taken for name, taken in msgspec.structs.asdict(sums.spent).items() if taken} == pytest.approx(
        {
            "start_up": 10, "training": 40 + 8, "stalled": 75, "collecting_evidence": 2, "ending": 3, "backoff": 2,
            "restart": 10, "redone_batches": 40,
        }
    )  # fmt: skip
    assert (sums.seconds, sums.lost, sums.effective) == pytest.approx((190, 132, 48 / 190))
    assert sum(one.lost for one in troubles) == pytest.approx(sums.lost)
    assert (sums.batches, sums.epoch, sums.epochs, sums.first_loss, sums.loss) == (290, 3, 3, 0.5, 0.25)
    assert sums.rate == pytest.approx((290 - 9) / 48), "what is trained again is time lost"


def test_a_silence_that_ended_by_itself_is_no_training(tmp_path):
    known, tries, troubles = read(
        tmp_path, *STALL[:7], (140, Announce("training.recovered", {})), heartbeat(141, 91), heartbeat(190, 200)
    )

    times = summary.totals(known, tries, troubles).spent
    assert (round(times.training), round(times.stalled)) == ((190 - 10) - (140 - 50), 90 - 2)


def test_the_story_says_what_when_where_why_what_was_done_and_what_helps(tmp_path):
    text = announced(*read(tmp_path, *STALL, *END))

    assert "finished after 3 min 10 s: 290 batches, epoch 3 of 3, loss 0.2500 (from 0.5000)" in text
    assert "It stalled once, at 10:00:50: no progress for 75 s inside a training step" in text
    assert "It hung at train.py:9 in step." in text
    assert "Why: the training library never returned from a" in text
    assert "It was started again once, with 1/2 of the batch at a time." in text
    assert "2 min 12 s were lost in all to stalls and restarts, with 9 batches trained a second time." in text
    assert text.endswith("Suggestion: restart it.")


def test_every_end_has_its_sentence(tmp_path):
    parts = read(tmp_path, *STALL[:3])

    assert "No stall." in announced(*parts)
    assert "stallguard gave up after 50 s: enough" in announced(*parts, "gave up")
    assert "exit code 1" in announced(*parts, "failed")
    assert "is under way" in announced(*parts, "running")
    assert "stallguard itself ended unexpectedly" in announced(*parts, "lost")


def test_advice_comes_once_the_surest_cause_s_first(tmp_path):
    known, tries, [one] = read(tmp_path, *STALL, *END)

    assert summary.advice([one, one], summary.totals(known, tries, [one])) == [
        "restart it",
        "use the CPU",
        "look at the locks",
    ]


def test_several_causes_are_counted(tmp_path):
    known, tries, [one] = read(tmp_path, *STALL, *END)
    other = msgspec.structs.replace(one, findings=(LOCK,), where="")

    text = announced(known, tries, [one, one, other])

    assert "It stalled 3 times, first at 10:00:50" in text
    assert "the causes: the training library never returned from a call (twice); it waits for a" in text

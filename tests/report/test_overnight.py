"""The morning's three lines, for every way that a night can end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.core.time_spent import Spent
from stallguard.report.overnight import STATES, TO_DO, Night, far, lines

GOOD = Night(
    run="20261102-230001-train", command="train.py", state="finished", seconds=25_920.0, ended="06:12", epoch=200,
    epochs=200, batches=412_000, loss=0.03124, first_loss=0.841,
)  # fmt: skip


def test_a_good_night_has_nothing_to_do():
    assert lines(GOOD) == [
        "train.py: finished at 06:12 after 7 h 12 min  (20261102-230001-train)",
        "  epoch 200 of 200, loss 0.0312 (from 0.8410), 412\u202f000 batches",
        "  no stalls; nothing to do",
    ]


def test_a_hard_night_tells_the_causes_once_the_loss_and_the_advice():
    night = Night(
        run="r", command="train.py", state="finished", seconds=3600.0, batches=1, stalls=3, restarts=2, lost=840.0,
        spent=Spent(training=2760.0, stalled=600.0, redone_batches=240.0),
        causes=("device wait", "memory", "device wait"), advice="a smaller batch: model.fit(batch_size=64)",
    )  # fmt: skip
    time = "76.6 % effective training time (stalled 10 min, redone batches 4 min)"
    assert lines(night)[1:] == [
        "  1 batch",
        f"  3 stalls (device wait, memory), 2 restarts; {time}; a smaller batch: model.fit(batch_size=64)",
    ]


def test_giving_up_says_why_and_where_the_story_is():
    night = Night(run="r9", command="train.py", state="gave up", seconds=60.0, why="two attempts brought no progress")
    assert "two attempts brought no progress" in lines(night)[0]
    assert lines(night)[1] == "  no batch was seen"
    assert "stallguard report r9" in lines(night)[2]


@pytest.mark.parametrize("state", [*STATES, "something new"])
def test_every_state_makes_three_whole_lines(state):
    said = lines(Night(run="r", command="c", state=state))
    assert len(said) == 3
    assert not any("{" in line or "None" in line for line in said)


def test_every_state_has_something_to_do():
    assert set(STATES) == set(TO_DO)


@given(st.builds(Night))
def test_no_summary_brings_an_error(night):
    assert len(lines(night)) == 3
    assert night.command in lines(night)[0]


def test_the_last_notification_says_how_far_it_came():
    assert far(3, 200, "0.0312") == "epoch 3 of 200, loss 0.0312"
    assert far(3, None, "") == "epoch 3"
    assert far(None, None, "") == ""


def test_a_night_that_crashed_but_did_not_stall_is_no_quiet_one():
    night = Night(run="r", command="c", state="finished", crashes=2, restarts=2, causes=("memory",), lost=0.4)
    assert lines(night)[2] == "  2 crashes (memory), 2 restarts; nothing to do"


def test_what_is_to_do_depends_on_what_the_run_left():
    stopped = Night(run="r1", command="c", state="stopped", resumable=True)
    assert "stallguard run --resume r1" in lines(stopped)[2]
    assert "job" not in lines(stopped)[2], "there is none"
    assert "the job nightly resumes it from its checkpoint" in lines(replace(stopped, job="nightly"))[2]
    for job in ("", "nightly"):
        assert lines(replace(stopped, resumable=False, job=job))[2].endswith("begins from scratch")
    assert lines(replace(stopped, continued_by="r2"))[2].endswith("it went on as r2")
    assert lines(replace(stopped, continues="r0"))[0].endswith("(r1, going on from r0)")

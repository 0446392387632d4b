"""How a live run stands, in words: a row for each training where there are several, and never a screenful."""

from __future__ import annotations

import pytest

from stallguard.report import status_rows
from tests.cli.living import SNAPSHOT, STALLED


def training(number, **more):
    living = {
        "number": number, "pid": 100 + number, "place": f"p-{number}", "command": f"train.py {number}", "how": "",
        "judgement": {"step": "healthy"}, "batches": 40, "seconds": 12.0, "silent": 0.2, "rate": 20.0,
        "progress": {"epoch": 1, "epochs": 6, "batch": 3, "batches": 16, "loss": 0.5},
    }  # fmt: skip
    return living | more


def rows(*trainings):
    return dict(status_rows.trainings({"trainings": list(trainings)}))


def test_one_training_needs_no_row_of_its_own():
    assert rows(training(1)) == {}


def test_each_of_several_has_its_progress_or_its_end():
    shown = rows(training(1, how="failed"), training(2))
    assert shown["training 1"] == "train.py 1, pid 101: ended by an error, 40 batches in 12 s"
    assert shown["training 2"].startswith("train.py 2, pid 102: healthy, epoch 2 of 6, batch 3 of 16, ")
    assert shown["training 2"].endswith("20 batches a second, silent for 0.2 s")


@pytest.mark.parametrize(("silent", "says"), [(0.2, "batches end"), (450.0, "no batch has ended for 7 min 30 s")])
def test_a_run_without_a_batch_for_a_minute_is_not_said_to_train(silent, says):
    shown = dict(status_rows.rows({"state": "running", "silent": silent, "judgement": {"threshold": 900.0}}))
    assert shown["state"].startswith(f"running: {says}")

    each = rows(training(1), training(2, silent=silent))["training 2"]
    assert ("healthy" in each) == (silent < 60)


def test_of_a_long_loop_only_the_last_are_shown():
    over = [training(number, how="ended") for number in range(1, 101)]
    shown = rows(*over, training(101))
    assert shown["trainings"] == "92 more are over"
    assert list(shown)[1:] == [f"training {number}" for number in range(93, 102)]


def test_what_a_command_line_holds_cannot_steer_the_terminal():
    assert "\x1b" not in rows(training(1, command="train.py \x1b[31m"), training(2))["training 1"]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"loss": 1.33829, "loss_of_epoch": True, "source": "callbacks"}, "loss 1.3383 in the last epoch"),
        ({"loss": 1.33829, "source": "callbacks"}, "loss 1.3383 so far in this epoch"),
        ({"loss": 0.00012345, "source": "on_batch"}, "loss 1.2345e-04"),
        ({"loss": None, "loss_not_finite": "nan", "source": "callbacks"}, "loss nan so far in this epoch"),
        ({"loss": None, "loss_not_finite": "inf", "source": "torch"}, "loss inf"),
    ],
)
def test_a_loss_says_what_it_is_of(record, words):
    snapshot = {"epoch": 1, "epochs": 3, "batch": 2, "batches": 9} | record
    assert status_rows.progress(snapshot, None).endswith(f", {words}")


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("starting", "watched from outside only: no library"),
        ("warming", "warming: the training has started; no batch has ended yet"),
    ],
)
def test_what_is_watched_from_outside_only_is_told_in_place_of_the_state(state, told):
    known = {"state": state, "outside": "watched from outside only: no library", "seconds": 90.0}
    assert dict(status_rows.rows(known))["state"].startswith(told)


def test_a_silence_that_lasts_is_lost_already():
    announced = dict(status_rows.rows(STALLED | {"lost": 75.0}))

    assert announced["stalls"] == "1 stall, 1 min 15 s lost", "the silence is in it"
    assert announced["silent"] == "for 1 min 15 s, 12 s is a stall"
    assert dict(status_rows.rows(SNAPSHOT | {"lost": 0.0}))["stalls"] == "1 stall"


def test_what_is_left_is_known_only_with_a_pace_and_an_end():
    heartbeat = SNAPSHOT["progress"]

    assert status_rows.remaining(heartbeat, 2.5) == (1000 - 250) / 2.5
    assert status_rows.remaining(heartbeat, None) is None
    assert status_rows.remaining(heartbeat | {"epochs": -1}, 2.5) is None


def test_the_last_epoch_of_a_training_that_ends_at_a_step_is_shorter():
    heartbeat = {"epoch": 1, "epochs": 3, "batch": 10, "batches": 40, "total": 90, "micro": 200}

    assert status_rows.remaining(heartbeat, 2.0) == (90 - 50) / 2.0
    words = status_rows.progress(heartbeat, 2.0)
    assert words == "epoch 2 of 3, batch 10 of 40, 50 of 90 in all, 200 micro-batches, 20 s to go"


def test_a_bar_fills_with_the_silence():
    assert status_rows.silence_bar(SNAPSHOT).count("█") == 1
    assert status_rows.silence_bar(STALLED) == "█" * status_rows.BAR
    assert status_rows.silence_bar({"state": "new"}) == ""


def test_hostile_last_words_are_text():
    [(_, text)] = [row for row in status_rows.rows(SNAPSHOT, "\x1b[2J\u202ex") if row[0] == "last words"]
    assert text == "\u241b[2J<U+202E>x"


def gpu(device):
    return dict(status_rows.rows({"state": "running", "readings": {"device": device}})).get("GPU")


def test_the_gpu_is_shown_with_all_that_it_says_and_nothing_that_it_does_not():
    device = {"utilisation": 1.0, "memory_utilisation": 0.0, "power_watts": 118.2, "power_limit_watts": 700.0}
    assert gpu(device) == "100% busy, its memory 0% busy, 118 of 700 W"
    more = device | {"clock_mhz": 345, "clock_limit_mhz": 1980, "others": 1, "xid_count": 2, "xid": 31, "ecc_errors": 4}
    errors = "2 critical errors, the newest Xid 31 (a kernel used an invalid address)"
    assert gpu(more).endswith(f"118 of 700 W, 345 of 1980 MHz, 1 other program on it, {errors}")
    assert gpu({}) is None

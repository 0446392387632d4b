"""How a live run stands, in words: a row for each training where there are several, and never a screenful."""

from __future__ import annotations

from stallguard.report import status_rows


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


def test_of_a_long_loop_only_the_last_are_shown():
    over = [training(number, how="ended") for number in range(1, 101)]
    shown = rows(*over, training(101))
    assert shown["trainings"] == "92 more are over"
    assert list(shown)[1:] == [f"training {number}" for number in range(93, 102)]


def test_what_a_command_line_holds_cannot_steer_the_terminal():
    assert "\x1b" not in rows(training(1, command="train.py \x1b[31m"), training(2))["training 1"]

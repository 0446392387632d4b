"""Where the time went, as a user reads it: places, and the time of the script without stalls."""

from __future__ import annotations

import pytest

from stallguard.core.profile import Profile, Spot, place


@pytest.mark.parametrize(
    ("file", "function", "shown"),
    [
        ("/home/ada/train.py", "generate", "generate() at train.py:12"),
        ("C:\\work\\train.py", "generate", "generate() at train.py:12"),
        ("/home/ada/train.py", "<module>", "train.py:12"),
    ],
)
def test_a_place_is_named_by_its_file_alone_and_by_a_function_that_has_a_name(
    file: str, function: str, shown: str
) -> None:
    assert place(file, 12, function) == shown
    assert Spot("training", "step", 1.0, file, 12, function).where == shown
    assert Spot("training", "step", 1.0).where == ""


def test_stalls_and_the_work_of_the_probe_are_no_time_of_the_script() -> None:
    times = {"step": 40.0, "no progress": 15.0, "stallguard": 3.0, "finishing": 2.0}
    assert Profile(60.0, 120, times).watched == 40.0
    assert Profile(10.0, 20, {"no progress": 11.0}).watched == 0.0

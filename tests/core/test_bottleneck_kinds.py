"""What is advised against a bottleneck is for the library and the data that the script uses."""

from __future__ import annotations

import pytest

from stallguard.core import bottleneck_kinds
from stallguard.core.bottlenecks import bottlenecks
from tests.core.test_bottlenecks import FIT, GENERATOR, spot, story


@pytest.mark.parametrize(
    ("feed", "versions", "source", "advised"),
    [
        ("dataset", {"tensorflow": "2.20.0", "keras": "3.12.0"}, "callbacks", "dataset.prefetch"),
        ("generator", {"tensorflow": "2.20.0", "keras": "3.12.0"}, "callbacks", "keras.utils.PyDataset("),
        ("pydataset", {"jax": "0.7.0", "keras": "3.12.0"}, "callbacks", "super().__init__(workers"),
        ("pydataset", {"tensorflow": "2.15.0", "keras": "2.15.0"}, "callbacks", "model.fit(..., workers"),
        ("loader", {"torch": "2.8.0"}, "torch", "DataLoader(dataset, num_workers"),
        ("", {"torch": "2.8.0"}, "torch", "generate() at train.py:6"),
        ("arrays", {"tensorflow": "2.20.0"}, "tape", "generate() at train.py:6"),
    ],
)
def test_what_is_advised_against_slow_input_is_for_what_the_script_uses(
    feed: str, versions: dict[str, str], source: str, advised: str
) -> None:
    history = story(
        spot(58.0, 30, **FIT), GENERATOR, cores=0.1, feed=feed, versions=versions, counts={"source": source}
    )
    advice = bottlenecks(history)[0].advice
    assert advised in advice[0]
    assert ("prefetch" in "".join(advice)) == (feed == "dataset")


@pytest.mark.parametrize(
    ("versions", "source", "has_tf", "has_torch"),
    [
        ({"tensorflow": "2.20.0", "keras": "3.12.0"}, "callbacks", True, False),
        ({"torch": "2.8.0"}, "torch", False, True),
        ({"torch": "2.8.0", "tensorflow": "2.20.0"}, "torch", False, True),
        ({"torch": "2.8.0", "keras": "3.12.0"}, "callbacks", False, False),
        ({"jax": "0.7.0", "keras": "3.12.0"}, "callbacks", False, False),
        ({"torch": "2.8.0"}, "hand", False, True),
    ],
)
def test_nothing_of_tensorflow_is_advised_to_another_library(
    versions: dict[str, str], source: str, has_tf: bool, has_torch: bool
) -> None:
    own = spot(40.0, 9, does="sleep", function="step")
    advice = bottlenecks(story(own, versions=versions, counts={"source": source}))[0].advice
    assert any("@tf.function" in one for one in advice) == has_tf
    assert any("torch.compile" in one for one in advice) == has_torch


COMMANDS = ("docker ", "stallguard ", "sudo renice ", "taskpolicy ", "TF_")


def test_code_in_advice_is_python_or_a_command() -> None:
    codes = [piece.code for row in bottleneck_kinds.KINDS.values() for piece in row.advice if piece.code]
    for code in codes:
        if not code.startswith(COMMANDS):
            compile(f"{code}\ndef step(): ..." if code.startswith("@") else code, "advice", "exec")

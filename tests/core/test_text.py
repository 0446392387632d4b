"""A long line of the output is quoted with its end shown as missing."""

from __future__ import annotations

import pytest

from stallguard.core.text import cut, in_words, script_place
from tests.core.scenarios.linux import box


@pytest.mark.parametrize(("text", "quoted"), [("", ""), ("1234", "1234"), ("12345", "123…"), ("12  5", "12…")])
def test_what_is_too_long_ends_in_an_ellipsis(text: str, quoted: str) -> None:
    assert cut(text, 4) == quoted


def test_a_sentence_quotes_a_long_line_only_so_far() -> None:
    story = box().train(4).line("xla_oom", "RESOURCE_EXHAUSTED: Out of memory " + "x" * 300).exit(1)
    announced = [text for finding in story.findings() for text in (*finding.evidence, *finding.against)]

    assert any("RESOURCE_EXHAUSTED" in text for text in announced), announced
    assert all(text.endswith("…") for text in announced if "RESOURCE_EXHAUSTED" in text)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("Cell In[2], line 7, in step(x)", "cell 2, line 7 in step"),
        ("Cell In[12], line 3", "cell 12, line 3"),
        ('  File "/home/ada/train.py", line 31, in step', "train.py:31 in step"),
    ],
)
def test_a_line_of_a_traceback_is_named(line, place):
    assert script_place(line) == place


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("cell 2, line 7 in step", "line 7 of cell 2, in step"), ("cell 2, line 7", "line 7 of cell 2"),
        ("train.py:31 in step", "line 31 of train.py, in step"),
    ],
)  # fmt: skip
def test_a_place_is_said_in_words(place, words):
    assert in_words(place) == words

"""A long line of the output is quoted with its end shown as missing."""

from __future__ import annotations

import pytest

from stallguard.core.text import cut
from tests.core.scenarios.linux import box


@pytest.mark.parametrize(("text", "quoted"), [("", ""), ("1234", "1234"), ("12345", "123…"), ("12  5", "12…")])
def test_what_is_too_long_ends_in_an_ellipsis(text: str, quoted: str) -> None:
    assert cut(text, 4) == quoted


def test_a_sentence_quotes_a_long_line_only_so_far() -> None:
    story = box().train(4).line("xla_oom", "RESOURCE_EXHAUSTED: Out of memory " + "x" * 300).exit(1)
    announced = [text for finding in story.findings() for text in (*finding.evidence, *finding.against)]

    assert any("RESOURCE_EXHAUSTED" in text for text in announced), announced
    assert all(text.endswith("…") for text in announced if "RESOURCE_EXHAUSTED" in text)

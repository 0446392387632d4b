"""Small tools: their words, their absence, their hanging."""

from __future__ import annotations

import time

import pytest

from stallguard.host import tool


def test_a_tools_words_are_returned_in_the_plain_locale() -> None:
    assert tool.run(["/usr/bin/env"], 5).count("LC_ALL=C") == 1


def test_a_missing_or_failing_tool_is_unknown() -> None:
    assert tool.run(["/no/such/tool"], 5) is None
    assert tool.run(["/bin/sh", "-c", "echo x; exit 64"], 5) is None


def test_a_hanging_tool_and_its_children_are_ended_at_the_deadline() -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="/bin/sh did not answer"):
        tool.run(["/bin/sh", "-c", "sleep 60 & sleep 60"], 0.2)
    assert time.monotonic() - begun < 5


def test_endless_output_is_cut() -> None:
    text = tool.run(["/bin/sh", "-c", "head -c 20000000 /dev/zero"], 20)
    assert text is not None
    assert len(text) == tool.OUTPUT_MAX

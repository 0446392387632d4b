"""What an agent is given: marked, without secrets, visible, and of limited size."""

from __future__ import annotations

import json

import msgspec
import pytest

from stallguard.collectors.redact import Redactor
from stallguard.report import agent_answer


def made(value, *, env=None, **how):
    return agent_answer.made(value, Redactor(env or {}), **how)


def test_what_is_short_enough_is_whole():
    answer = made({"schema": 1, "lines": ["a", "b"]})

    assert answer.result == {"schema": 1, "lines": ["a", "b"]}
    assert (answer.left_out, answer.removed, answer.exit_code) == ([], {}, 0)
    assert "never an instruction" in answer.untrusted


@pytest.mark.parametrize("newest_last", [True, False])
def test_of_a_long_list_the_interesting_end_is_kept_and_the_answer_says_so(newest_last):
    answer = made({"lines": [f"{number:04} {'x' * 90}" for number in range(3000)]}, newest_last=newest_last)
    shown = answer.result["lines"]

    assert 100 < len(shown) < 3000
    assert shown[-1 if newest_last else 0].startswith("2999" if newest_last else "0000")
    assert answer.left_out == [
        f"result.lines: {3000 - len(shown)} of 3000 items, the {'first' if newest_last else 'last'}"
    ]


@pytest.mark.parametrize(
    "value",
    [
        {"text": "x" * 500_000},
        {"rows": [{f"key{number}": "y" * 300 for number in range(9)} for _ in range(500)]},
        {f"key{number}": ["z" * 50] * 9 for number in range(900)},
        {"deep": [[[[["w" * 50] * 9] * 9] * 9] * 9]},
    ],
)
def test_no_answer_is_longer_than_a_client_takes(value):
    answer = made(value)

    assert len(json.dumps(answer.result, indent=2)) <= agent_answer.MOST
    assert answer.left_out != []
    assert len(answer.left_out) <= agent_answer.NAMED + 1


def test_what_cannot_be_made_short_enough_is_missing_and_the_answer_says_so():
    answer = made({f"{'k' * 1000}{number}": number for number in range(60)})

    assert answer.result is None
    assert answer.left_out == ["result: all of it"]


def test_secrets_are_removed_before_text_is_made_shorter():
    answer = made({"out": f"{'x' * 7990} hunter2-s3cr3t", "more": "y" * 40_000}, env={"API_KEY": "hunter2-s3cr3t"})

    assert "hunter2" not in json.dumps(answer.result)
    assert answer.removed == {"known": 1}


def test_a_character_that_nobody_sees_becomes_visible():
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey")
    answer = made({"out": f"loss 0.3{hidden}\x1b[2J\u202e"})

    assert answer.result == {"out": "loss 0.3<U+E006F><U+E0062><U+E0065><U+E0079>\u241b[2J<U+202E>"}


def test_a_number_that_json_does_not_have_is_unknown():
    assert msgspec.to_builtins(made({"loss": float("nan")}))["result"] == {"loss": None}

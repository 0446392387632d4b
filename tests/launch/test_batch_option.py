"""The size that a script is told: what it is started with, for any size, divisor and way of telling it."""

from __future__ import annotations

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from stallguard.core.limits import PolicyLimits
from stallguard.errors import USAGE, StallguardError
from stallguard.launch.batch_option import given

SIZES, FACTORS = st.integers(1, 10**6), st.sampled_from([1, 2, 4, 8, 64])
FLAGS = st.sampled_from(["--batch-size", "--batch_size", "-b", "batch_size"])
BYSTANDERS = st.lists(
    st.sampled_from(["train.py", "--epochs", "7", "--batch-size-test", "64", "--lr=1e-3", "-", "x y"]), max_size=5
)


def announced(
    argv: list[str], factor: int = 1, most: int = 0, env: dict[str, str] | None = None, **ways: object
) -> list[str]:
    return given(argv, env or {}, PolicyLimits(**ways), factor, most).argv  # type: ignore[arg-type]


def refused(argv: list[str], env: dict[str, str] | None = None, **ways: object) -> StallguardError:
    with pytest.raises(StallguardError) as caught:
        announced(argv, env=env, **ways)
    assert caught.value.code == USAGE
    assert caught.value.cure
    return caught.value


@pytest.mark.parametrize(
    ("words", "smaller"),
    [
        (["--batch-size", "512"], ["--batch-size", "128"]),
        (["--batch-size=512"], ["--batch-size=128"]),
        (["--batch-size", "64", "--batch-size=512"], ["--batch-size", "128", "--batch-size=128"]),
    ],
)
def test_the_scripts_own_option_gets_the_value_divided(words: list[str], smaller: list[str]) -> None:
    command = ["python", "train.py", *words, "--epochs", "3"]
    assert announced(command, batch_flag="--batch-size") == command
    assert announced(command, 4, batch_flag="--batch-size") == ["python", "train.py", *smaller, "--epochs", "3"]


def test_a_short_option_is_understood_in_each_of_its_spellings() -> None:
    for words, smaller in (["-b", "64"], ["-b", "32"]), (["-b64"], ["-b32"]), (["-b=64"], ["-b=32"]):
        assert announced(["train", *words], 2, batch_flag="-b") == ["train", *smaller]


def test_an_option_that_is_absent_is_added_where_the_size_is_known() -> None:
    assert announced(["train.py"], 2, batch_flag="--batch-size", batch=512) == ["train.py", "--batch-size", "256"]
    assert announced(["train.py"], 2, batch_flag="batch_size", batch=512) == ["train.py", "batch_size=256"]


def test_braces_anywhere_in_the_arguments_get_the_size() -> None:
    command = ["train.py", "--set", "data.batch={batch}", "{batch}"]
    assert announced(command, 2, batch=512) == ["train.py", "--set", "data.batch=256", "256"]
    assert announced(command, batch=512)[-1] == "512"
    assert announced(command) == command, "a template of the script's own stays, where nobody gives a size"


def test_a_variable_gets_the_size() -> None:
    limits = PolicyLimits(batch_env="BATCH")
    assert given(["t"], {"BATCH": "512"}, limits, 8).env == {"BATCH": "64"}
    assert given(["t"], {"A": "b"}, PolicyLimits(batch_env="BATCH", batch=32), 2).env == {"A": "b", "BATCH": "16"}


def test_what_cannot_be_known_is_refused_with_a_cure() -> None:
    assert "--batch-size" in refused(["train.py"], batch_flag="--batch-size").what
    assert "BATCH" in refused(["train.py"], batch_env="BATCH").what
    assert "'auto'" in refused(["train.py", "-b", "auto"], batch_flag="-b").what
    assert "'0'" in refused(["train.py", "-b", "0"], batch_flag="-b").what
    assert "{batch}" in (refused(["train.py"], batch=512).cure or "")


def test_a_ceiling_holds_from_the_first_attempt_on() -> None:
    found = given(["t", "-b", "512"], {}, PolicyLimits(batch_flag="-b"), 1, most=384)
    assert (found.argv, found.whole, found.rows) == (["t", "-b", "384"], 384, 384)
    assert announced(["t", "-b", "512"], 2, most=384, batch_flag="-b") == ["t", "-b", "192"]
    assert announced(["t", "-b", "256"], most=384, batch_flag="-b") == ["t", "-b", "256"]


@over(BYSTANDERS, BYSTANDERS, FLAGS, SIZES, FACTORS, st.integers(1, 512), st.booleans())
def test_only_the_value_changes_and_the_least_batch_holds(
    before: list[str], after: list[str], flag: str, size: int, factor: int, least: int, joined: bool
) -> None:
    value = [f"{flag}={size}"] if joined else [flag, str(size)]
    found = given([*before, *value, *after], {}, PolicyLimits(batch_flag=flag, min_batch=least), factor)
    rows = max(1, size // factor, min(least, size))
    smaller = [f"{flag}={rows}"] if joined else [flag, str(rows)]
    assert found.argv == [*before, *smaller, *after]
    assert (found.whole, found.rows) == (size, rows)


@over(st.lists(st.text(), max_size=6), st.dictionaries(st.text(), st.text(), max_size=4), FACTORS)
def test_a_script_that_is_not_given_its_size_is_started_as_it_stands(
    argv: list[str], env: dict[str, str], factor: int
) -> None:
    assert given(argv, env, PolicyLimits(), factor) == (argv, env, None, None)


@over(st.lists(st.text(max_size=12), max_size=6), FLAGS, FACTORS)
def test_any_command_gets_its_size_or_is_refused_in_words(argv: list[str], flag: str, factor: int) -> None:
    try:
        found = given(argv, {}, PolicyLimits(batch_flag=flag), factor)
    except StallguardError:
        return
    assert len(found.argv) == len(argv)

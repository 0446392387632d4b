"""`stallguard run` reads its everyday options without click: with the same result, or not at all."""

from __future__ import annotations

from typing import Any

import click
import pytest

from stallguard import config
from stallguard.cli.run import command


def as_click_reads(words: list[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the settings and COMMAND as click's parser has them."""
    parameters = command.make_context("run", list(words)).params
    flags = {
        name.replace("__", "."): raw
        for name, raw in parameters.items()
        if "__" in name and name != "set__" and raw is not None
    }
    return flags, tuple(parameters["words"])


@pytest.mark.parametrize(
    "line",
    [
        "train.py",
        "train.py --quiet -- --python x",
        "-m package.train --epochs 3",
        "-- python -c pass",
        "-- -- train.py",
        "--quiet train.py",
        "--quiet --no-quiet train.py",
        "--no-probe --observe -m package",
        "--python /usr/bin/python3 -- train.py",
        "--python one --python two train.py",
        "--on-stall halve --max-restarts 5 --patience 2 -- python train.py --verbose",
        "--grace  30s train.py --set stop.grace=1",
    ],
)
def test_plain_options_are_read_as_click_reads_them(line: str) -> None:
    words = line.split()

    assert config.from_words(words) == as_click_reads(words)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--",
        "--quiet",
        "--quiet --",
        "--python",
        "--python --quiet train.py",
        "--python=/usr/bin/python3 train.py",
        "--no-python train.py",
        "--quie train.py",
        "-q train.py",
        "-qv train.py",
        "--help",
        "--dry-run train.py",
        "--name one train.py",
        "--set stop.grace=1 train.py",
        "--quiet --set stop.grace=1 train.py",
        "--no-such train.py",
    ],
)
def test_all_other_words_are_left_to_click(line: str) -> None:
    assert config.from_words(line.split()) is None


def test_every_option_of_a_setting_can_be_read_without_click() -> None:
    for option in command.params:
        is_settings = "__" in (option.name or "") and option.name != "set__"
        if isinstance(option, click.Option) and is_settings and not option.hidden:  # hidden: removed settings
            words = [option.opts[-1], *([] if option.is_flag else ["1"]), "train.py"]

            assert config.from_words(words) == as_click_reads(words)

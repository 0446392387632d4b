"""An incident that is pasted into an issue is complete, and nothing foreign in it is markup."""

from __future__ import annotations

import re

import msgspec
import pytest

from stallguard.report import document, markdown
from tests.report.hostile import EVIL, SECRET, hostile
from tests.report.nights import night


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return document.make(night(tmp_path_factory.mktemp("night"), minutes=10, stalls=2), {})


def test_an_issue_has_what_its_reader_asks_for(made):
    text = markdown.incident(made, made.incidents[0])

    for piece in (
        "### Stall 1: Stalled: no progress for 80 s", "It hung at `train.py:88 in step`.", "`train.py --epochs 100`",
        "tensorflow-metal 1.2.0", "(very likely, 81%)", "- for it: ", "- against it: ", "main thread",
        "train.py:140", "What was done:", "Epoch 1/100",
    ):  # fmt: skip
        assert piece in text, piece
    assert text.index("train.py:88") < text.index("threads alike")


def test_foreign_text_cannot_leave_its_place(tmp_path):
    made = document.make(hostile(tmp_path), {})
    text = markdown.incident(made, made.incidents[0])
    fences = re.compile(r"^(`{3,})text\n.*?^\1$", re.DOTALL | re.MULTILINE)
    prose = re.sub(r"(?<!\\)(`+)(?!`).*?(?<!`)\1(?!`)", "", fences.sub("", text))

    assert EVIL in text
    assert re.findall(r"(?<!\\)[<>]", prose) == []
    assert SECRET not in text


def test_a_fence_is_longer_than_what_it_holds(made):
    kept = msgspec.structs.replace(made.incidents[0].evidence, output=("```", "````` x", "end"))
    text = markdown.incident(made, msgspec.structs.replace(made.incidents[0], evidence=kept))

    assert "``````text\n```\n````` x\nend\n``````\n" in text
    assert markdown.code("a`b") == "`` a`b ``"

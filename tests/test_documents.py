"""The hand-written documents name what the code has: each cause with its remedy, each bottleneck, the versions."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stallguard.core.bottlenecks.kinds import KINDS
from stallguard.core.diagnosis.causes import CAUSES, FINISH, STOP, Remedy
from stallguard.doctor.matrix import PIN

ROOT = Path(__file__).parents[1]
REPORTED, ENDS = "Reported, without a restart", "The run ends"


def rows(document: str) -> list[tuple[str, str, list[str]]]:
    """Return (heading, key, other cells) of each row whose first cell is a key of the code."""
    heading, found = "", []
    for line in (ROOT / document).read_text("utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif match := re.match(r"\| (`[a-z`, or-]+`) \|(.*)\|$", line):
            cells = [cell.strip() for cell in match[2].split("|")]
            found += [(heading, key, cells) for key in re.findall(r"`([a-z0-9-]+)`", match[1])]
    return found


def steps(remedy: Remedy) -> str:
    """Return the steps of a remedy as docs/causes.md writes them."""
    return ", ".join(remedy.ladder).replace("cpu", "CPU") + ("+" if remedy.persists else "")


def test_each_cause_has_one_row_and_each_row_a_cause() -> None:
    assert sorted(key for _, key, _ in rows("docs/causes.md")) == sorted(CAUSES)


@pytest.mark.parametrize("key", sorted(CAUSES))
def test_the_row_of_a_cause_has_its_sentence_and_its_remedy(key: str) -> None:
    remedy = CAUSES[key].remedy
    ((heading, cells),) = [(heading, cells) for heading, name, cells in rows("docs/causes.md") if name == key]
    assert cells[0].split(";")[0] == CAUSES[key].title
    if remedy.ladder:
        written = re.split(r"; |, after ", cells[1])[0]
        assert written == steps(remedy)
    else:
        assert heading == (ENDS if remedy.instead in (STOP, FINISH) else REPORTED)


def test_each_kind_of_slowness_has_one_row() -> None:
    assert sorted(key for _, key, _ in rows("docs/slow.md")) == sorted(KINDS)


def test_the_readme_installs_the_pair_that_the_doctor_names() -> None:
    lines = [
        line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if "tensorflow-metal==" in line
    ]
    assert [shlex.split(line) for line in lines] == [shlex.split(PIN)]

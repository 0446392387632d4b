"""The images on which the workflow runs: which, until when, and what is said in time."""

from __future__ import annotations

import datetime
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("images", ROOT / "scripts" / "checks" / "images.py")
images = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(images)
WORKFLOW = (ROOT / images.WORKFLOW).read_text("utf-8")


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


def test_every_image_of_the_workflow_is_judged():
    named = [word for word in re.split(r"[\s,{}]+", WORKFLOW) if re.match(r"(macos|ubuntu|windows|xcode)-", word)]
    assert [name for _, name in images.used(WORKFLOW)] == named
    assert len(named) > 9


def test_the_workflow_is_without_fault_today():
    failures, _ = images.judged(WORKFLOW, datetime.datetime.now(datetime.UTC).date())
    assert failures == []


@pytest.mark.parametrize(
    ("name", "today", "failures", "warnings"),
    [
        ("macos-14", "2026-09-03", [], []),
        ("macos-14", "2026-09-04", [], ["macos-14 ends on 2026-11-02 (#13518): use macos-15 in this line"]),
        ("macos-14", "2026-11-02", [], ["macos-14 ends on 2026-11-02 (#13518): use macos-15 in this line"]),
        ("macos-14", "2026-11-03", ["macos-14 ended on 2026-11-02 (#13518): use macos-15 in this line"], []),
        ("macos-26", "2026-02-25", ["macos-26 begins on 2026-02-26 (#13739)"], []),
        ("macos-26", "2026-11-28", [], []),
        ("macos-27", "2026-11-28", [
            "macos-27 is unknown: add it to IMAGES of scripts/checks/images.py, with its dates"], []),
    ],
)  # fmt: skip
def test_an_image_fails_only_after_its_end_and_names_the_line_to_change(name, today, failures, warnings):
    workflow = f"jobs:\n  test:\n    runs-on: {name}\n"
    place = ".github/workflows/ci.yml:3: "
    assert images.judged(workflow, day(today)) == ([place + x for x in failures], [place + x for x in warnings])


def test_an_old_table_warns_and_breaks_nothing():
    _, warnings = images.judged("", images.LOOKED + datetime.timedelta(days=183))
    assert len(warnings) == 1
    assert "renew IMAGES and LOOKED" in warnings[0]
    assert images.judged("", images.LOOKED + datetime.timedelta(days=182)) == ([], [])

"""The same hang, in two runs from two directories, is one incident; another hang is another."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from .runs import AT_ONCE, SCRIPTS, guard, stallguard

pytestmark = pytest.mark.live
SOON = (*AT_ONCE, "--patience", "0.25", "--on-stall", "stop")


def hang(home: Path, place: Path, at: int, lines: int) -> None:
    """Let the loop of the tests deadlock at a step, as a copy in `place` with further lines above its code."""
    place.mkdir()
    script = place / "loop.py"
    script.write_text("# a line\n" * lines + (SCRIPTS / "loop.py").read_text())
    guard(home, *SOON, str(script), "evening", "400", "0.05", str(at), str(place / "memory"), cwd=place)


def test_a_hang_keeps_its_name_and_another_has_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    hang(home, tmp_path / "monday", 60, 0)
    hang(home, tmp_path / "tuesday", 75, 12)
    shutil.copy(SCRIPTS / "waits.py", tmp_path)
    guard(home, *SOON, str(tmp_path / "waits.py"), "queue")

    listed = json.loads(stallguard(home, "incidents", "--json").out)["incidents"]
    assert [(one["count"], len(one["runs"])) for one in listed] == [(2, 2), (1, 1)]
    name = listed[0]["name"]
    assert name.startswith("wait-")
    assert name != listed[1]["name"]
    assert listed[0]["where"] == "loop.py:43 in deadlock", "the place is that of the newest run"

    text = stallguard(home, "incidents").out.decode()
    assert f"{name}  twice (2 in the last seven days)" in text
    morning = stallguard(home, "morning").out.decode()
    assert f"{name}: second time this week; first seen " in morning
    assert "seen for the first time" in morning
    assert name in stallguard(home, "report", listed[0]["last_run"]).out.decode()

    unknown = stallguard(home, "incidents", "no-such")
    assert (unknown.code, "stallguard incidents lists them" in unknown.err) == (3, True)

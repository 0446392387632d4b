"""The walk itself: its list, its table, what it keeps, and that one check that fails hides no other."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_has_its_columns_and_its_sums():
    from mac import table
    from mac.table import FAILED, HELD, UNASKED, Row

    rows = [
        Row("gpu", HELD, "3 %", "works"),
        Row("sleep", UNASKED),
        Row("kill -9", FAILED, "no process", "lost"),
    ]
    lines = table.lines(rows)

    assert lines[0].split() == ["check", "verdict", "figure", "what", "it", "means"]
    assert (
        len(
            {line.index(word) for line, word in zip(lines[2:], ("held", "not asked", "did not"), strict=True)}
        )
        == 1
    )
    assert table.summary(rows) == "1 held, 1 did not hold, 1 not asked"
    assert (table.code(rows), table.code(rows[:2])) == (1, 0)


def test_every_check_says_what_it_does_in_a_line_and_is_a_generator():
    from mac.checks import CHECKS

    assert len({check.name for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert 10 < len(check.says) < 100, check
        assert inspect.isgeneratorfunction(inspect.unwrap(check.do)), check


def test_what_stands_out_is_announced_before_it_is_done(scene):
    from mac.checks import Check, walk
    from mac.table import judged

    done = []

    def look(_scene):
        done.append("look")
        yield judged("look", holds=True, figure="", means="")

    def fail(_scene):
        yield judged("half", holds=True, figure="", means="")
        raise OSError("no ioreg")

    checks = [
        Check("loud", "make a noise", look, "a noise"),
        Check("broken", "break", fail),
        Check("last", "look", look),
    ]
    rows = walk(scene, checks, lambda: done.append("pause"))

    assert done == ["pause", "look", "look"]
    assert scene.announced[:2] == ["1/3  loud: make a noise", "      you may notice: a noise"]
    assert [(row.check, row.verdict) for row in rows] == [
        ("look", "held"), ("half", "held"), ("broken", "did not hold"), ("look", "held"),
    ]  # fmt: skip
    assert (rows[2].figure, rows[2].means) == ("OSError", "no ioreg")


def test_one_check_can_be_made_alone_and_an_unknown_one_is_named():
    from mac.checks import chosen

    assert [check.name for check in chosen(["sleep"])] == ["sleep"]
    with pytest.raises(ValueError, match="no check slep; there are: gpu"):
        chosen(["slep"])


def test_recordings_name_their_mac_and_their_command_and_no_user():
    from mac import recordings
    from mac.recordings import Mac, Recording

    clean = recordings.cleaner(lambda text: text.replace("/Users/ada", "~"), ("ada", "adas-mini", "m"))
    said = clean(
        '/Users/ada/x ada@adas-mini m1 "IOPlatformSerialNumber" = "C02ABC" 4f2a8c1e-0000-1111-2222-333344445555'
    )
    mac = Mac("26.1", "25B78", "Apple M4 Pro")
    text = recordings.section(mac, "2026-11-21", [Recording("a.txt", "pmset -g log | grep x", 0, 0.12, "")])

    assert said == f'~/x user@user m1 "IOPlatformSerialNumber" = [serial] {recordings.NO_UUID}'
    assert mac.folder == "26.1-25b78-m4-pro"
    assert "macOS 26.1 (25B78), Apple M4 Pro, 2026-11-21" in text
    assert "| a.txt | `pmset -g log \\| grep x` | 0 | 0.12 |" in text


def test_a_second_walk_of_the_same_mac_takes_the_place_of_the_first(tmp_path):
    from mac import recordings
    from mac.recordings import Mac, Recording

    (tmp_path / "SOURCES.md").write_text("# What\n\nwords\n")
    first, other = Mac("26.1", "25B78", "Apple M4"), Mac("26.2", "25C1", "Apple M1")
    for mac, text in ((first, "old"), (other, "x"), (first, "new")):
        place = recordings.keep(tmp_path, mac, "2026-11-21", [Recording("gpu.txt", "ioreg", 0, 0.1, text)])

    announced = (tmp_path / "SOURCES.md").read_text()
    assert (place / "gpu.txt").read_text() == "new"
    assert announced.startswith("# What\n\nwords\n\n## ")
    assert announced.count("## 26.1-25b78-m4/") == announced.count("## 26.2-25c1-m1/") == 1


def test_saving_leaves_the_user_out(scene, tmp_path):
    import walk
    from mac.recordings import Mac, Recording

    scene.recordings["a"] = Recording("a.txt", f"ls {Path.home()}", 0, 0.1, f"{Path.home()}/train")
    place = walk.save(scene, tmp_path / "recordings", Mac("26.1", "25B78", "Apple M4"))

    assert (place / "a.txt").read_text() == "~/train"
    assert str(Path.home()) not in (tmp_path / "recordings" / "SOURCES.md").read_text()


def test_a_tool_that_hangs_or_is_absent_is_an_answer_too(tmp_path):
    from mac.scene import Scene

    scene = Scene(tmp_path, {"PATH": os.environ["PATH"]}, print)
    assert scene.tool("a", "sleep", "5", seconds=0.1).code == 124
    assert scene.tool("b", "no-such-tool").code == 127
    assert (
        scene.tool("c", "sh", "-c", "echo out; echo err >&2; pwd; exit 3").text == f"out\nerr\n{tmp_path}\n"
    )
    assert scene.recordings["c"].code == 3


def test_an_order_to_end_comes_as_an_interruption_and_not_during_the_removal():
    from mac.scene import interruptible, undisturbed

    with interruptible():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        with undisturbed():
            os.kill(os.getpid(), signal.SIGTERM)


def test_each_make_of_python_is_found_once(tmp_path):
    from mac.machine import pythons

    uv = tmp_path / ".local/share/uv/python/cpython-3.12-macos/bin/python3"
    uv.parent.mkdir(parents=True)
    uv.symlink_to("/bin/sh")
    found = pythons(tmp_path, lambda path: sys.executable if "homebrew" in path else None)

    assert found["stallguard's"] == sys.executable
    assert found["uv's"] == str(uv)
    assert "Homebrew's" not in found, "it is stallguard's own"


def test_another_system_is_refused_with_the_reason():
    command = [sys.executable, str(ROOT / "scripts/walks/walk.py"), "--only", "sleep"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert "these checks need a Mac" in done.stderr

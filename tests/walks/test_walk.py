"""The walk itself: its list, its table, what it keeps, and that one check that fails hides no other."""

from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_table_has_its_columns_and_its_sums():
    from mac import table
    from mac.table import FAILED, HELD, UNASKED, Row

    rows = [Row("gpu", HELD, "3 %", "works"), Row("sleep", UNASKED), Row("kill -9", FAILED, "no process", "lost")]
    lines = table.lines(rows)

    assert lines[0].split() == ["check", "verdict", "figure", "what", "it", "means"]
    assert len({line.index(word) for line, word in zip(lines[2:], ("held", "not asked", "did not"), strict=True)}) == 1
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


def test_recordings_name_their_mac_and_their_command():
    from mac import recordings
    from mac.recordings import Mac, Recording

    mac = Mac("26.1", "25B78", "Apple M4 Pro")
    text = recordings.section(mac, "2026-11-21", [Recording("a.txt", "pmset -g log | grep x", 0, 0.12, "")])

    assert mac.folder == "26.1-25b78-m4-pro"
    assert "macOS 26.1 (25B78), Apple M4 Pro, 2026-11-21" in text
    assert "| a.txt | `pmset -g log \\| grep x` | 0 | 0.12 |" in text


def test_a_sample_leaves_no_copy_and_its_report_is_kept(tmp_path):
    from mac import machine
    from mac.scene import Said, Scene

    asked = []

    def run(words, seconds, env, cwd):
        asked.append(words)
        Path(words[words.index("-file") + 1]).write_text("Call graph:")  # as the tool does; its output is of progress
        return Said(0, "Sampling process 7 for 1 second", 1.0)

    scene = Scene(tmp_path, {}, print, run)
    assert machine.sampled(scene, "sample_x", 7, 1).text == scene.recordings["sample_x"].text == "Call graph:"
    assert asked[0][:4] == ("/usr/bin/sample", "7", "1", "-mayDie")
    assert list(tmp_path.iterdir()) == []


def test_of_sleeps_only_times_and_kinds_are_kept():
    from mac import machine

    log = "".join(
        f"2026-09-{day:02} 22:29:58 -0700 {kind:20}\tEntering Sleep due to 'Quillon Player'\n"
        for day in range(1, 31) for kind in ("Sleep", "Assertions", "Wake")
    )  # fmt: skip
    words = machine.SLEEPS.replace("/usr/bin/pmset -g log", "cat").replace("/usr/bin/", "")
    done = subprocess.run(["/bin/sh", "-c", words], input=log, capture_output=True, text=True, check=True)
    kept = done.stdout.splitlines()
    assert (len(kept), kept[-1]) == (20, "2026-09-30 22:29:58 -0700 Wake")
    assert "Quillon" not in done.stdout
    assert "Assertions" not in done.stdout


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


def test_a_tool_that_hangs_or_is_absent_is_an_answer_too(tmp_path):
    from mac.scene import Scene

    scene = Scene(tmp_path, {"PATH": os.environ["PATH"]}, print)
    assert scene.tool("a", "sleep", "5", seconds=0.1).code == 124
    assert scene.tool("b", "no-such-tool").code == 127
    assert scene.tool("c", "sh", "-c", "echo out; echo err >&2; pwd; exit 3").text == f"out\nerr\n{tmp_path}\n"
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


def test_what_a_check_needs_and_this_machine_lacks_is_not_asked(scene):
    from mac.checks import ANYWHERE, APPLE, MAC, Check, walk
    from mac.table import judged

    def look(_scene):
        yield judged("look", holds=True, figure="", means="it looks")

    checks = [
        Check("gpu", "look", look, needs=APPLE),
        Check("job", "look", look),
        Check("pty", "look", look, needs=ANYWHERE),
    ]
    seen = {here: [row.verdict for row in walk(scene, checks, lambda: None, here)] for here in (ANYWHERE, MAC, APPLE)}
    assert seen[ANYWHERE] == ["not asked", "not asked", "held"]
    assert seen[MAC] == ["not asked", "held", "held"]
    assert seen[APPLE] == ["held", "held", "held"]


def test_unattended_nothing_is_done_that_a_user_notices_or_that_needs_a_gpu():
    from mac.checks import CHECKS, unattended

    assert [check.name for check in unattended(CHECKS)] == [
        "memory", "footprint", "heat", "thermal", "sleep", "processes", "kqueue", "bursts", "files", "disk",
        "sockets", "terminal", "pythons", "orphan", "samples", "caffeinate",
    ]  # fmt: skip


@pytest.mark.whole
def test_under_a_terminal_a_script_behaves_as_without_stallguard(tmp_path):
    from mac import terminal
    from mac.scene import Scene

    env = {**os.environ, "STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(ROOT)}
    rows = list(terminal.checks(Scene(tmp_path, env, print)))

    assert [(row.check, row.verdict) for row in rows] == [
        ("bytes on a terminal", "held"), ("all bytes", "held"), ("colours", "held"), ("resize", "held"),
        ("Ctrl-S at the end", "held"), ("Ctrl-C", "held"), ("Ctrl-Z", "held"), ("a pipe that closes", "held"),
    ], rows  # fmt: skip


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "scripts/live", "scripts/walks/walk.py"])
def test_a_walk_takes_as_long_as_is_said_on_a_mac_without_what_asks_first(document):
    from mac.checks import APPLE, CHECKS, estimate

    said = re.search(r"about (\d+) minutes", (ROOT / document).read_text())
    minutes = estimate([check for check in CHECKS if not check.asks], APPLE)
    assert said is not None
    assert abs(int(said[1]) - minutes) <= 2, minutes
    assert {check.name for check in CHECKS if check.asks} == {"metal-wait", "suite"}


@pytest.mark.parametrize(
    ("answer", "left", "why"),
    [
        (True, ["quick", "long"], ""),
        (False, ["quick"], "you said no"),
        (None, ["quick"], "no user at a terminal agreed"),
    ],
)
def test_what_takes_longer_is_asked_for_before_the_walk_and_left_out_without_a_yes(answer, left, why):
    from mac.checks import ANYWHERE, Check, agreed

    asked = []

    def ask(question):
        asked.append(question)
        return answer

    checks = [Check("quick", "look", list, needs=ANYWHERE), Check("long", "look", list, needs=ANYWHERE, asks="an hour")]
    done, rows = agreed(checks, ask, ANYWHERE)
    assert asked == ["long: an hour. Do it?"]
    assert [check.name for check in done] == left
    assert [(row.check, row.verdict) for row in rows] == [("long", "not asked")][: len(checks) - len(left)]
    assert all(row.means.startswith(why) for row in rows)


def test_no_one_is_asked_for_what_cannot_be_done_here():
    from mac.checks import ANYWHERE, MAC, Check, agreed

    done, rows = agreed([Check("long", "look", list, needs=MAC, asks="an hour")], pytest.fail, ANYWHERE)
    assert ([check.name for check in done], rows) == (["long"], [])


def test_the_checks_of_metal_come_before_those_of_launchd_in_the_minutes_that_are_promised():
    from mac.checks import APPLE, CHECKS, estimate

    promised = re.search(r"in the\s+first (\d+) minutes", (ROOT / "CONTRIBUTING.md").read_text())
    names = [check.name for check in CHECKS]
    first = CHECKS[: names.index("job")]

    assert {"work", "steps", "metal-resume", "metal-slices", "shared-gpu", "short-memory"} <= {
        one.name for one in first
    }
    assert estimate(first, APPLE) <= int(promised[1])

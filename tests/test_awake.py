"""Keeping the machine awake, with the system's own helper where there is one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time

import psutil
import pytest

from stallguard.awake import FIRST_BATCHES, Awake, AwakePlan, DisplaySleep, is_display_due, plan, warnings
from stallguard.core.readings import Machine


def here(name: str) -> str:
    return f"/bin/{name}"


def test_a_mac_is_held_until_we_end_and_its_display_may_go_dark():
    assert plan(812, "darwin").command == ("/usr/bin/caffeinate", "-i", "-s", "-w", "812")


def test_linux_asks_systemd_against_sleep_and_idle():
    how = plan(812, "linux", here)
    assert how.command[:2] == ("/bin/systemd-inhibit", "--what=sleep:idle")
    assert how.by_pipe


def test_where_there_is_no_way_it_says_so_and_starts_nothing():
    how = plan(812, "linux", lambda _: None)
    awake = Awake(how)

    assert (how.command, awake.trouble()) == ((), None)
    assert "no systemd-inhibit" in awake.words
    awake.close()


def until(what, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(what())


def test_close_ends_the_helper():
    awake = Awake(AwakePlan((shutil.which("cat"),), "cat holds", by_pipe=True))
    helper = psutil.Process(awake._helper.pid)
    assert awake.trouble() is None
    awake.close()
    assert not helper.is_running()


def test_the_helper_ends_with_us_when_we_are_killed(tmp_path):
    script = (
        "import os, shutil, signal\n"
        "from stallguard.awake import Awake, AwakePlan\n"
        "awake = Awake(AwakePlan((shutil.which('cat'),), 'held', by_pipe=True))\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(awake._helper.pid))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], timeout=30, check=False)

    assert until(lambda: not psutil.pid_exists(int((tmp_path / "pid").read_text())))


def test_a_helper_that_ends_by_itself_is_reported_with_its_reason():
    awake = Awake(AwakePlan(("/bin/sh", "-c", "echo Failed to inhibit: access denied >&2; exit 1"), "held"))

    assert until(lambda: awake.trouble() is not None)
    reason = awake.trouble()
    awake.close()
    assert reason == "the machine is not kept awake: Failed to inhibit: access denied"


def test_a_helper_that_cannot_be_started_is_no_error():
    awake = Awake(AwakePlan(("/no/such/helper",), "held"))
    assert "nothing keeps this machine awake" in awake.words
    awake.close()


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (None, []),
        (Machine(power="ac", lid_closed=False), []),
        (Machine(power="battery"), ["battery"]),
        (Machine(power="battery", lid_closed=True), ["battery", "lid"]),
    ],
)
def test_what_sleeps_all_the_same_is_warned_of(machine, words):
    found = warnings(machine)
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("attempt", "batches", "last", "due"),
    [
        (1, FIRST_BATCHES - 1, 0, False),
        (1, FIRST_BATCHES, 0, True),
        (1, 5000, 1, False),
        (2, 0, 1, False),
        (2, FIRST_BATCHES, 1, True),
    ],
)
def test_the_display_is_due_once_an_attempt_when_its_first_batches_have_run(attempt, batches, last, due):
    assert is_display_due(attempt, batches, last) is due


@pytest.mark.parametrize(("code", "says"), [(0, "put the display to sleep"), (3, "ended with 3")])
def test_the_display_is_put_to_sleep_by_pmset_alone_and_its_refusal_is_said(tmp_path, code, says):
    fake = tmp_path / "pmset"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/log\nexit {code}\n')
    fake.chmod(0o755)
    display, said = DisplaySleep("darwin", str(fake)), []

    assert display.look(1, 0) == display.look(1, FIRST_BATCHES) == ""
    assert until(lambda: said.append(display.look(1, 9)) or any(said))
    assert says in "".join(said)
    assert display.look(1, 500) == display.look(1, 501) == ""
    assert (tmp_path / "log").read_text() == "displaysleepnow\n"


def test_a_mac_without_pmset_and_linux_say_that_nothing_was_done(tmp_path):
    assert "not put to sleep" in DisplaySleep("darwin", str(tmp_path / "none")).look(1, FIRST_BATCHES)
    linux = DisplaySleep("linux", str(tmp_path / "none"))
    assert (linux.look(1, FIRST_BATCHES), "does nothing" in linux.words) == ("", True)

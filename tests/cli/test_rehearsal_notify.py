"""`stallguard notify test`, and a run whose notifications cannot go out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests import command_line

ROOT = Path(__file__).parents[2]
NO_DESKTOP = ("--set", "notify.desktop=off")


@pytest.fixture
def stallguard(tmp_path, monkeypatch):
    """A function that runs a verb, in a Python that has no Apprise."""
    monkeypatch.setitem(sys.modules, "apprise", None)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text("import sys\nsys.modules['apprise'] = None\n")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"STALLGUARD_HOME": str(tmp_path / "kept"), "PYTHONPATH": str(blocked)}
        how = command_line.process if words[0] == "run" else command_line.stallguard
        return how(*words, env=env, cwd=tmp_path)

    return run


def test_each_channel_is_tried_and_its_end_is_said(stallguard, tmp_path):
    tell = f'notify.command=printf %s "$STALLGUARD_TITLE" > {tmp_path}/told'
    done = stallguard("notify", "test", *NO_DESKTOP, "--set", tell)
    assert done.returncode == 0
    assert re.fullmatch(r"the command: accepted, in \d+\.\d s\n", done.stdout)
    assert (tmp_path / "told").read_text() == "stallguard: a test"


def test_a_channel_that_fails_is_exit_code_1_with_its_reason(stallguard):
    done = stallguard("notify", "--test", "--json", *NO_DESKTOP, "--set", "notify.command=exit 7")
    (channel,) = json.loads(done.stdout)["channels"]
    assert (done.returncode, channel["channel"], "exit code 7" in channel["why"]) == (1, "the command", True)


def test_a_command_that_is_not_there_is_named_as_such(stallguard):
    done = stallguard("notify", "test", *NO_DESKTOP, "--set", "notify.command=no-such-command-anywhere")
    assert (done.returncode, "the shell found no such command" in done.stdout) == (1, True)


def test_a_desktop_that_is_wanted_and_cannot_be_reached_is_said(stallguard, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")  # on a Mac the program is named by its path
    done = stallguard("notify", "test", "--set", "notify.command=:")
    assert done.stdout.startswith("the command: accepted") or sys.platform == "darwin"
    assert ("no notify-send here" in done.stderr) == (sys.platform != "darwin")
    assert "no channel is configured" not in done.stderr


def test_addresses_without_apprise_fail_with_the_way_to_install_it(stallguard):
    done = stallguard("notify", "--test", *NO_DESKTOP, "--set", "notify.urls=json://localhost")
    assert done.returncode == 1
    assert "Apprise is not installed" in done.stdout
    assert "'.[notify]'" in done.stdout


def test_no_channel_at_all_is_said(stallguard):
    done = stallguard("notify", "--test", *NO_DESKTOP)
    assert (done.returncode, "no channel is configured" in done.stderr) == (1, True)
    assert stallguard("notify").returncode == 2
    assert "stallguard notify test" in stallguard("notify").stderr


@pytest.mark.costly
def test_a_run_shows_in_its_status_what_cannot_be_sent(stallguard, tmp_path):
    (tmp_path / "train.py").write_text(
        "import os, time\nuntil = time.monotonic() + 60\n"
        "while not os.path.exists('stop') and time.monotonic() < until: time.sleep(0.05)\n"
    )
    options = ("--python", sys.executable, *NO_DESKTOP, "--set", "notify.urls=json://localhost")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(stallguard, "run", *options, "train.py")
        until = time.monotonic() + 60
        shown = ""
        while "not sent" not in shown and time.monotonic() < until:
            shown = stallguard("status").stdout
        (tmp_path / "stop").touch()
    assert "Apprise is not installed" in shown
    done = running.result()
    assert done.returncode == 0
    assert "stallguard: notifications by Apprise are not sent: notify.urls is set and" in done.stderr


@pytest.mark.costly
def test_the_summary_of_the_night_is_sent_on_request(stallguard, tmp_path):
    (tmp_path / "train.py").write_text("print('done')")
    tell = f'printf "%s\\n" "$STALLGUARD_EVENT" "$STALLGUARD_TEXT" > {tmp_path}/told'
    (tmp_path / "stallguard.toml").write_text(f"[notify]\ndesktop = false\non = []\ncommand = {json.dumps(tell)}\n")
    assert stallguard("run", "--python", sys.executable, "train.py").returncode == 0
    done = stallguard("morning", "--notify")
    assert (done.returncode, done.stderr) == (0, "the command: accepted\n")
    assert (tmp_path / "told").read_text() == f"morning\n{done.stdout}"
    assert "train.py: finished" in done.stdout
    (tmp_path / "stallguard.toml").write_text('[notify]\ndesktop = false\ncommand = "exit 4"\n')
    failed = stallguard("morning", "--notify")
    assert (failed.returncode, failed.stderr) == (1, "the command: failed: it ended with exit code 4\n")

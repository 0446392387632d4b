"""`stallguard agent` from end to end against the recorded launchd."""

from __future__ import annotations

import json
import plistlib
import subprocess
import sys

import pytest
from click.testing import CliRunner

import stallguard.cli.agent as verbs
from stallguard.agent import job_memory
from stallguard.agent.launchd import Launchd
from stallguard.agent.service_manager import LAUNCHD, places
from stallguard.errors import NO_SUCH_RUN, USAGE, StallguardError
from stallguard.host.types import Sleep


@pytest.fixture
def agent(fake, home, monkeypatch, tmp_path):
    """A function that runs a verb on a Mac of user 501."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "kept"))
    monkeypatch.chdir(home / "train")
    (home / "train" / "train.py").write_text("")
    mac = Launchd(places(LAUNCHD, {"HOME": str(home)}), 501, fake.ask, sleep=lambda _: None)
    monkeypatch.setattr(verbs, "own_system", lambda: LAUNCHD)
    monkeypatch.setattr(verbs, "manager", lambda _system, _env: mac)

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(verbs.command, words)
        if isinstance(result.exception, StallguardError):
            assert result.exception.code == code, result.exception.lines()
            return "\n".join(result.exception.lines())
        assert result.exit_code == code, (result.output, result.exception)
        return result.output

    return run


def test_a_definition_that_was_spoiled_by_hand_does_not_become_a_loop(agent, capfd, monkeypatch):
    monkeypatch.setattr("stallguard.agent.runner.detach_output", lambda: None)
    assert "not a time to start at" in agent("work", "--name", "night", "--at", "25:00", "--", "train.py")


def test_an_option_that_is_gone_is_said_by_status_and_does_not_become_a_loop(agent, monkeypatch):
    monkeypatch.setattr("stallguard.agent.runner.detach_output", lambda: None)
    job_memory.keep("night", job_memory.JobMemory(wanted=True))
    assert "--long-ago" in agent("work", "--name", "night", "--", "--long-ago", "train.py")
    assert "install the job again" in job_memory.recall("night").trouble


NIGHTLY = ("install", "--name", "night", "--at", "23:00", "--python", sys.executable, "--", "train.py", "--epochs", "9")


def test_a_job_is_installed_listed_shown_and_removed(agent, fake, home):
    assert "night: " in agent(*NIGHTLY)
    assert "daily at 23:00" in agent("list")
    assert json.loads(agent("status", "--json"))["job"]["command"] == [str(home / "train/train.py"), "--epochs", "9"]
    shown = agent("show", "--name", "night")
    assert plistlib.loads(shown.encode())["Label"] == "com.stallguard.night"
    agent("uninstall")
    assert "no jobs" in agent("list")
    assert fake.state["jobs"] == {}
    agent("uninstall", code=NO_SUCH_RUN)


def test_now_is_remembered_before_launchd_starts_the_job(agent, fake):
    agent("install", "--now", "--python", sys.executable, "--", "train.py")

    assert job_memory.recall("agent").wanted
    assert fake.calls[-2:] == ["kickstart", "print"]


def test_without_now_a_load_starts_nothing(agent):
    agent(*NIGHTLY)
    past = job_memory.recall("night")
    assert (past.wanted, past.started) == (False, None)


def test_options_of_run_are_handed_on(agent, fake):
    agent("install", "--at", "23:00", "--stop-at", "7:30", "--no-probe", "--set", "detector.cap=20s", "--python",
          sys.executable, "--", "train.py")  # fmt: skip
    words = fake.state["jobs"]["com.stallguard.agent"]["keys"]["ProgramArguments"]
    options = words[words.index("--") + 1 :]
    assert options[: options.index("--")] == [
        "--stop-at", "7:30", "--no-probe", "--set", "detector.cap=20s", "--python", sys.executable,
    ]  # fmt: skip


def test_a_job_without_a_time_is_refused(agent):
    assert "--at 23:00" in agent("install", "--", "train.py", code=USAGE)


def test_a_setting_that_is_none_is_refused_at_install(agent):
    assert "no setting" in agent("install", "--now", "--set", "stop.grase=1s", "--", "train.py", code=USAGE)


def test_a_guarded_folder_is_refused_and_nothing_is_left(agent, fake, home, monkeypatch):
    (home / "Documents").mkdir()
    (home / "Documents" / "train.py").write_text("")
    monkeypatch.chdir(home / "Documents")

    assert "macOS protects" in agent(*NIGHTLY, code=126)
    assert (job_memory.names(), fake.calls) == ([], [])


def test_a_failed_install_leaves_the_memory_as_it_was(agent, fake):
    agent(*NIGHTLY)
    before = job_memory.recall("night")
    fake.set(bootstrap=[5] * 100)
    agent(*NIGHTLY, code=125)
    assert job_memory.recall("night") == before


def test_stop_stays_stopped_and_start_starts(agent, fake):
    agent(*NIGHTLY)
    agent("stop")
    assert job_memory.recall("night").halted
    agent("start")
    assert job_memory.recall("night").wanted
    assert "running (pid 400" in agent("status")


def test_several_jobs_have_to_be_named(agent):
    agent(*NIGHTLY)
    agent("install", "--name", "day", "--at", "12:00", "--python", sys.executable, "--", "train.py")
    assert "day, night" in agent("stop", code=USAGE)
    agent("stop", "--name", "day")


def test_what_is_not_installed_is_said_with_its_code(agent):
    for verb in ("start", "stop", "restart"):
        assert "no job agent" in agent(verb, code=NO_SUCH_RUN)
    agent("status", code=NO_SUCH_RUN)
    agent("logs", code=NO_SUCH_RUN)


def test_status_is_1_where_the_job_is_not_in_force(agent, fake):
    agent(*NIGHTLY)
    fake.set(jobs={}, disabled=["com.stallguard.night"])
    assert "switched off" in agent("status", code=1)


def test_logs_shows_the_words(agent, home):
    agent(*NIGHTLY)
    (home / "Library/Logs/stallguard/night.log").write_text("begin\n")
    assert agent("logs") == "begin\n"


def test_show_prints_either_form_anywhere_without_installing(agent, fake, monkeypatch):
    monkeypatch.undo()
    result = CliRunner().invoke(
        verbs.command,
        ["show", "--system", "systemd", "--at", "23:00", "--python", sys.executable, "--", sys.executable, "-c", "1"],
    )
    assert result.exit_code == 0
    assert "OnCalendar=*-*-* 23:00:00" in result.output
    assert "ExecStart=" in result.output


def test_a_night_that_did_not_happen_is_said_by_status(agent):
    agent(*NIGHTLY)
    long_ago = job_memory.recall("night").installed.replace(year=2020)
    job_memory.keep("night", job_memory.JobMemory(installed=long_ago))

    announced = agent("status")

    assert "  missed      the start at 23:00 on " in announced
    assert "pmset repeat wakeorpoweron" in announced


def test_a_mac_that_will_sleep_is_said_at_install(agent, monkeypatch):
    monkeypatch.setattr("stallguard.host.system.sleep_settings", lambda: Sleep(600.0))
    assert "sudo pmset repeat wakeorpoweron MTWRFSU 22:59:00" in agent(*NIGHTLY)


def test_uninstall_of_nothing_says_that_there_is_no_job(agent):
    assert "there is no job agent" in agent("uninstall", code=NO_SUCH_RUN)
    assert "there is no job night" in agent("uninstall", "--name", "night", code=NO_SUCH_RUN)


def test_a_job_whose_definition_was_deleted_by_hand_is_still_removed(agent, fake, home):
    agent(*NIGHTLY)
    (home / "Library/LaunchAgents/com.stallguard.night.plist").unlink()
    agent("uninstall", "--name", "night")
    assert fake.state["jobs"] == {}


@pytest.mark.costly
def test_uninstall_of_nothing_needs_no_service_manager(monkeypatch, tmp_path):
    env = {"PATH": str(tmp_path), "HOME": str(tmp_path), "STALLGUARD_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "stallguard", "agent", "uninstall"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no job agent" in done.stderr) == (NO_SUCH_RUN, True)

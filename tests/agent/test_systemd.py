"""The systemd units: what systemd itself makes of them, and that no word is lost on the way."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.agent import systemd
from stallguard.agent.job import AgentJob, Schedule, read_back

HOSTILE = (
    "a b", 'say "no"', "100%", "%h", "$HOME", "${X}", "back\\slash", "tab\there", "line\nbreak", "",
    "ü 模型", ";", "'", "#",
)  # fmt: skip
JOB = AgentJob(
    name="night",
    python=sys.executable,
    run=("--stop-at", "07:30", "--", "/srv/train.py", *HOSTILE),
    cwd="/tmp",
    log="/tmp/100% mine.log",
    schedule=Schedule(at=("03:00", "23:00"), every=21600.0),
    env={"PATH": "/usr/bin", "ODD": 'a "b" %h $c \\'},
)


def analyze(*words: str, **env: str):
    """Run systemd-analyze."""
    command = ["systemd-analyze", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={"PATH": PATH} | env)


PATH = "/usr/bin:/bin"


def test_the_training_writes_its_files_with_the_users_own_mask():
    assert "UMask" not in systemd.service_text(JOB)


def test_hostile_words_are_read_back_as_they_were():
    assert read_back(systemd.program(systemd.service_text(JOB))) == ("night", JOB.schedule, JOB.run)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4))
def test_any_words_are_read_back(words):
    job = replace(JOB, run=("--", *(word.replace("\0", "") for word in words)))
    text = systemd.service_text(job)

    assert read_back(systemd.program(text)).run == job.run
    assert text.count("\nExecStart=") == 1


def test_no_word_breaks_out_of_its_line():
    text = systemd.service_text(JOB)
    lines = [line for line in text.split("\n") if line]
    assert all(re.match(r"\[\w+\]$|\w+=", line) for line in lines), text


def test_a_training_outlives_the_death_of_stallguard_and_an_oom_kill():
    lines = systemd.service_text(JOB).splitlines()
    assert {"KillMode=process", "OOMPolicy=continue", "Restart=on-failure", "TimeoutStopSec=60"} <= set(lines)


def test_what_dies_before_it_can_count_itself_is_not_started_for_ever_and_a_frequent_job_is_not_held_up():
    assert "StartLimitBurst=13" in systemd.service_text(JOB)
    assert "StartLimitBurst=70" in systemd.service_text(replace(JOB, schedule=Schedule(every=60.0)))
    assert "StartLimitBurst=403" in systemd.service_text(replace(JOB, max_restarts=200))
    assert 3600 / JOB.throttle > 70, "systemd must reach the limit"


def test_the_time_to_end_is_read_from_the_unit():
    assert systemd.stop_timeout(systemd.service_text(replace(JOB, exit_timeout=151))) == 151
    assert systemd.stop_timeout("[Service]") == 90


def test_a_job_by_hand_has_no_timer():
    assert systemd.timer_text(replace(JOB, schedule=Schedule())) is None
    assert systemd.timer_text(replace(JOB, schedule=Schedule(login=True))) is None


def test_only_a_job_at_login_is_wanted_by_the_session():
    assert "WantedBy" not in systemd.service_text(JOB)
    assert "WantedBy=default.target" in systemd.service_text(replace(JOB, schedule=Schedule(login=True)))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
@pytest.mark.parametrize("schedule", [JOB.schedule, Schedule(login=True)], ids=Schedule.words)
def test_systemd_finds_no_fault(tmp_path, schedule):
    job = replace(JOB, schedule=schedule)
    files = {"stallguard-night.service": systemd.service_text(job), "stallguard-night.timer": systemd.timer_text(job)}
    paths = [tmp_path / name for name, text in files.items() if text]
    for path in paths:
        path.write_text(files[path.name])

    done = analyze("--user", "verify", "--man=no", *map(str, paths), XDG_RUNTIME_DIR=str(tmp_path))

    complaints = [line for line in done.stderr.splitlines() if "stallguard-night" in line]
    assert complaints == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on this machine")
def test_systemd_reads_the_times():
    lines = systemd.timer_text(JOB).splitlines()
    times = [line.removeprefix("OnCalendar=") for line in lines if line.startswith("OnCalendar=")]

    done = analyze("calendar", *times)

    assert (done.returncode, done.stdout.count("Next elapse")) == (0, 3)


def test_a_long_interval_is_looked_at_by_the_calendar_because_its_timer_begins_anew_at_each_boot():
    timer = systemd.timer_text(replace(JOB, schedule=Schedule(every=7 * 86400.0))).splitlines()
    assert {"OnCalendar=hourly", "OnActiveSec=1"} <= set(timer)
    assert not any(line.startswith("OnUnitActiveSec") for line in timer)
    assert "OnUnitActiveSec=600" in systemd.timer_text(replace(JOB, schedule=Schedule(every=600.0))).splitlines()


@pytest.mark.parametrize("length", range(190, 202))
def test_a_title_that_is_cut_keeps_its_percent_signs_whole_and_no_backslash_at_its_end(length):
    for sign in ("%", "\\"):
        text = systemd.service_text(replace(JOB, run=("--", "x" * length + sign * 12)))
        title = re.search("^Description=(.*)$", text, re.MULTILINE)[1]
        assert re.search("%*$", title)[0].count("%") % 2 == 0
        assert not title.endswith("\\")

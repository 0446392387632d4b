"""More of the launchd part of the walk: an hour, what a job finds, ssh, a bootout under an adopted training."""

from __future__ import annotations

import datetime as dt
import time

import pytest

HELD, FAILED, UNASKED = "held", "did not hold", "not asked"
DUE = dt.datetime(2026, 11, 24, 12, 3, tzinfo=dt.timezone(dt.timedelta(hours=1)))
FACTS = {"names": ["HOME", "LANG", "PATH", "STALLGUARD_HOME", "TMPDIR", "USER"], "folders": 4, "cwd": "/Users/ada/walk",
         "files": 4096, "session": "Aqua", "umask": 0o22}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from mac import night, scene

    monkeypatch.setattr(night, "QUIET", 1.0)
    monkeypatch.setattr(scene, "POLL", 0.05)


def test_an_hour_is_about_two_minutes_away_and_further_than_a_job_starts_early():
    from mac import jobs

    from stallguard.agent.due_starts import EARLY

    for second in range(60):
        now = DUE.replace(second=second)
        assert EARLY.total_seconds() + 25 <= (jobs.due(now) - now).total_seconds() <= 150
        assert jobs.due(now).second == 0


def test_a_start_at_its_hour_must_be_recorded_too():
    from mac import verdicts_jobs as say

    on_time = (DUE + dt.timedelta(seconds=2)).isoformat()
    row = say.at_its_hour(DUE, on_time, "finished", 20)
    assert (row.verdict, row.figure) == (HELD, "due at 12:03, +2 s; morning: finished, 20 batches")
    assert say.at_its_hour(DUE, on_time, "", 0).verdict == FAILED
    assert say.at_its_hour(DUE, "", "", 0).verdict == FAILED
    late = (DUE + dt.timedelta(minutes=3)).isoformat()
    assert say.at_its_hour(DUE, late, "finished", 20).verdict == FAILED


def around(**other):
    from mac import verdicts_jobs as say

    rows = say.around(FACTS | other, "/Users/ada/walk", "darwin")
    return [row.verdict for row in rows]


def test_what_a_job_finds_around_it_must_be_enough_for_a_training():
    assert around() == [HELD, HELD, HELD]
    assert around(names=["HOME"]) == [FAILED, HELD, HELD]
    assert around(cwd="/") == [FAILED, HELD, HELD]
    assert around(files=256) == [HELD, FAILED, HELD]
    assert around(session="Background") == [HELD, HELD, FAILED]


def test_a_job_that_says_nothing_is_no_answer():
    from mac import verdicts_jobs as say

    assert [row.verdict for row in say.around({}, "/", "darwin")] == [UNASKED]


def test_an_install_over_ssh_reaches_the_session_or_gives_the_reason():
    from mac import verdicts_jobs as say

    words = "stallguard: there is no graphical session to install in"
    assert say.over_ssh(0, "", "Background", loaded=True).verdict == HELD
    assert say.over_ssh(126, words, "Background", loaded=False).verdict == HELD
    assert say.over_ssh(0, "", "Background", loaded=False).verdict == FAILED
    assert say.over_ssh(1, "Traceback", "Background", loaded=False).verdict == FAILED
    assert say.unreachable(255, "Connection refused").verdict == UNASKED


def test_ssh_that_does_not_let_its_user_in_is_said_to_be_so(scene):
    from mac import jobs

    [row] = jobs.ssh(scene)
    assert (row.verdict, row.check) == (UNASKED, "install over ssh")
    assert "Remote Login" in row.means


def test_an_install_over_ssh_is_made_with_the_walks_own_variables(scene, launchd, monkeypatch):
    """ssh is the shell that it would start on the other side."""
    import shlex

    from mac import jobs
    from mac.scene import Said

    real, seen = scene._run, []

    def run(words, seconds, env, cwd):
        if words[0] != "ssh":
            return real(words, seconds, env, cwd)
        seen.append(words[-1])
        if "stallguard" not in words[-1]:
            return Said(0, "Background\n", 0.1)
        command = shlex.split(words[-1])
        given = dict(word.split("=", 1) for word in command[1:] if "=" in word and word[0].isupper())
        assert given["STALLGUARD_HOME"] == scene.env["STALLGUARD_HOME"]
        return real(tuple(command[command.index("-P") - 1 :]), seconds, env, cwd)

    monkeypatch.setattr(scene, "_run", run)
    [row] = jobs.ssh(scene)
    assert (row.verdict, row.figure) == (HELD, "session Background: exit code 0, loaded: True"), row
    assert launchd.state["jobs"] == {}


@pytest.mark.live
def test_a_bootout_ends_an_adopted_training_and_its_outcome_is_kept(scene, launchd):
    from mac import jobs

    [row] = jobs.bootout(scene)
    assert (row.check, row.verdict) == ("bootout with an adopted training", HELD), row
    assert launchd.state["jobs"] == {}


def test_a_training_that_outlives_its_job_does_not_hold():
    from mac import verdicts_jobs as say

    assert say.ended("bootout", gone=True, code=143, why="SIGTERM").verdict == HELD
    assert say.ended("bootout", gone=True, code=None, why="").verdict == FAILED
    assert say.ended("bootout", gone=False, code=143, why="SIGTERM").verdict == FAILED


def test_without_a_service_manager_a_job_is_no_answer_on_linux_and_a_failure_on_a_mac(monkeypatch):
    import sys

    from mac import jobs
    from mac.scene import Said

    said = Said(126, "stallguard: there is no systemd of yours", 0.1)
    monkeypatch.setattr(sys, "platform", "linux")
    assert jobs.refused("a job", said).verdict == UNASKED
    monkeypatch.setattr(sys, "platform", "darwin")
    assert jobs.refused("a job", said).verdict == FAILED


@pytest.mark.live
def test_a_job_at_its_hour_is_recorded_looked_at_and_removed(scene, launchd, monkeypatch):
    """Its hour is so near that it starts when it is loaded; `morning` is a real program."""
    from mac import jobs
    from mac import scene as scenes

    fake = scene._run

    def run(words, seconds, env, cwd):
        return (scenes.run if words[4:5] == ("morning",) else fake)(words, seconds, env, cwd)

    monkeypatch.setattr(scene, "_run", run)
    scene.env["USER"] = "ada"
    monkeypatch.setattr(jobs, "AHEAD", 0)
    if dt.datetime.now(dt.UTC).second > 50:  # the minute must not end before the job is installed
        time.sleep(10)
    rows = list(jobs.hour(scene))
    assert rows[0].verdict == HELD, rows
    assert "morning: finished, 20 batches" in rows[0].figure
    assert (rows[1].check, "without USER" in rows[1].figure) == ("a job's environment", True), rows
    assert launchd.state["jobs"] == {}

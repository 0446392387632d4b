"""The launchd part of the walk, against the recorded launchctl with real processes behind it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    from mac import night, scene

    monkeypatch.setattr(night, "QUIET", 1.0)
    monkeypatch.setattr(scene, "POLL", 0.05)


def made(scene, *names):
    from mac import checks

    return checks.walk(scene, checks.chosen(names), lambda: None)


def verdicts(rows) -> dict[str, str]:
    return {row.check: row.verdict for row in rows}


def nothing_left(scene, launchd) -> bool:
    files = list((scene.home.parent / "Library" / "LaunchAgents").glob("*"))
    return launchd.state["jobs"] == {} and launchd.state["disabled"] == [] and files == []


def test_a_job_is_taken_through_its_whole_life_and_nothing_is_left(scene, launchd):
    rows = made(scene, "job")

    held = ("install", "reinstall", "kickstart", "kill -9", "finish", "stop", "uninstall")
    assert verdicts(rows) == dict.fromkeys(held, "held"), rows
    assert nothing_left(scene, launchd)
    assert {"launchctl_print_running", "launchctl_print_after_kill", "launchctl_print_not_found"} <= set(
        scene.recordings
    )


def test_launchds_badly_documented_answers_are_asked_for_and_nothing_is_left(scene, launchd):
    rows = made(scene, "answers")

    assert verdicts(rows) == {"launchd's ExitTimeOut": "held", "disabled": "held"}
    assert rows[0].figure == "5 s"
    assert nothing_left(scene, launchd)


def test_a_guarded_folder_is_refused_and_a_job_there_is_looked_at(scene, launchd):
    rows = made(scene, "guarded")

    assert verdicts(rows) == {"refusal": "held", "guarded folder": "did not hold"}, "nothing guards it on this machine"
    assert nothing_left(scene, launchd)


def test_an_interruption_removes_what_was_installed_and_says_what_was_not_asked(scene, launchd, monkeypatch):
    from mac import night

    def interrupted(_self):
        raise KeyboardInterrupt

    monkeypatch.setattr(night.Night, "output", interrupted)
    rows = made(scene, "job", "drill")

    said = verdicts(rows)
    assert (said["install"], said["job"], said["drill"]) == ("held", "not asked", "not asked")
    assert nothing_left(scene, launchd)


def test_a_job_that_is_not_taken_up_is_no_success(scene, launchd, monkeypatch):
    from mac import night

    monkeypatch.setattr(night, "COMES", 0.2)
    launchd.ask(["print", "gui/501"])
    (launchd.place / "state.json").write_text('{"jobs": {}, "session": false}')
    rows = made(scene, "job")

    assert verdicts(rows)["install"] == "did not hold"
    assert "log in at the Mac" in rows[0].means

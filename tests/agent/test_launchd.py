"""Install, reinstall, uninstall, start, stop and status against a recorded launchd."""

from __future__ import annotations

import plistlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stallguard.agent import launchd
from stallguard.agent.job import AgentJob, Schedule, exit_timeout, read_back
from stallguard.agent.launchd import Launchd
from stallguard.config import Config
from stallguard.core.limits import StopLimits
from stallguard.errors import StallguardError
from tests.agent.launchd_schema import mistakes

LABEL = "com.stallguard.night"

JOB = AgentJob(
    name="night",
    python="/opt/sg/bin/python",
    run=("--", "/Users/me/train/train.py"),
    cwd="/Users/me/train",
    log="/Users/me/Library/Logs/stallguard/night.log",
    env={"PATH": "/usr/bin", "LANG": "en_US.UTF-8"},
)
SCHEDULES = [Schedule(), Schedule(at=("03:00", "23:00")), Schedule(login=True), Schedule(every=21600.0)]


def refused(action, *arguments) -> StallguardError:
    with pytest.raises(StallguardError) as caught:
        action(*arguments)
    return caught.value


def said(error: StallguardError) -> str:
    return "\n".join(error.lines())


def test_a_first_install_enables_loads_and_verifies(fake, asking, job):
    asking.install(job)

    file = asking.places.definition("night")
    assert fake.calls == ["print", "enable", "bootout", "bootstrap", "print"]
    assert plistlib.loads(file.read_bytes())["Label"] == LABEL
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in file.parent.iterdir()] == [f"{LABEL}.plist"]
    assert fake.state["jobs"][LABEL]["exit"] is None, "the folder of the log existed when the job was started"


def test_installing_again_waits_until_the_old_one_is_gone(fake, manager, job):
    manager.install(job)
    fake.set(teardown=7)
    manager.install(replace(job, throttle=77))

    assert fake.calls[-5:] == ["enable", "bootout", "print", "bootstrap", "print"]
    assert fake.state["jobs"][LABEL]["keys"]["ThrottleInterval"] == 77


def test_installing_twice_leaves_the_same_job(fake, manager, job):
    manager.install(job)
    first = manager.places.definition("night").read_bytes()
    manager.install(job)

    assert manager.places.definition("night").read_bytes() == first
    assert manager.known("night").loaded


@pytest.mark.parametrize("codes", [[5], [37], [5, 5, 37, 5], [17], ["lie"], [36]], ids=str)
def test_what_launchd_says_for_now_is_tried_again(fake, manager, job, codes):
    fake.set(bootstrap=codes)

    manager.install(job)

    assert manager.known("night").loaded


def test_a_load_that_worked_in_spite_of_its_error_is_not_repeated(fake, manager, job):
    fake.set(bootstrap=["lie"])
    manager.install(job)
    assert fake.calls.count("bootstrap") == 1


def test_a_bootstrap_that_never_works_ends_with_its_reason_and_nothing_left_behind(fake, manager, job):
    fake.set(bootstrap=[5] * 100)

    error = refused(manager.install, job)

    assert "input/output error" in said(error)
    assert "Login Items" in said(error)
    assert not manager.places.definition("night").exists()
    assert 100 - len(fake.state["bootstrap"]) == 20


def test_a_job_that_was_switched_off_is_switched_on(fake, manager, job):
    fake.set(disabled=[LABEL])
    manager.install(job)
    assert manager.known("night").loaded


def test_an_old_job_that_does_not_end_is_waited_for_and_then_named(fake, manager, job, monkeypatch):
    manager.install(job)
    fake.set(teardown=100_000)
    monkeypatch.setattr("stallguard.agent.launchd.PAUSE", 10.0)  # fewer questions

    error = refused(manager.install, job)

    assert "could not be loaded" in said(error)
    assert manager.places.definition("night").exists(), "the job was installed before: its file stays"


@pytest.mark.parametrize("verb", ["ready", "install", "uninstall"])
def test_without_a_graphical_session_every_verb_says_to_log_in(fake, manager, job, verb):
    fake.set(session=False)
    arguments = {"ready": (), "install": (job,), "uninstall": ("night",)}[verb]

    error = refused(getattr(manager, verb), *arguments)

    assert "log in at the Mac's own screen" in said(error)
    assert not manager.places.definition("night").exists()


def test_root_is_refused(fake, manager):
    assert "sudo" in said(refused(Launchd(manager.places, 0).ready))


def test_a_user_at_the_screen_is_ready(fake, manager):
    manager.ready()


def test_uninstall_waits_for_the_end_and_removes_the_file(fake, manager, job):
    manager.install(job)
    manager.uninstall("night")

    assert fake.calls[-2:] == ["bootout", "print"]
    assert fake.state["jobs"] == {}
    assert not manager.places.definition("night").exists()


def test_uninstalling_what_is_not_there_is_no_error(fake, manager):
    manager.uninstall("night")


def test_a_property_list_of_another_user_is_left_alone(fake, manager, job):
    file = manager.places.definition("night")
    file.parent.mkdir(parents=True)
    file.write_bytes(plistlib.dumps({"Label": LABEL, "ProgramArguments": ["/bin/true"]}))

    for action in (lambda: manager.install(job), lambda: manager.uninstall("night")):
        assert "stallguard did not install" in said(refused(action))
    assert plistlib.loads(file.read_bytes())["ProgramArguments"] == ["/bin/true"]


def test_a_loaded_job_of_another_user_is_left_alone(fake, manager, job, tmp_path):
    manager.install(job)
    jobs = fake.state["jobs"]
    jobs[LABEL]["file"] = "/Applications/Other.app/night.plist"
    fake.set(jobs=jobs)

    assert "/Applications/Other.app/night.plist" in said(refused(manager.uninstall, "night"))
    assert LABEL in fake.state["jobs"]


def test_start_and_stop_leave_the_job_installed(fake, manager, job):
    manager.install(job)
    manager.stop("night")
    assert (manager.known("night").running, manager.known("night").loaded) == (False, True)
    manager.start("night")
    assert manager.known("night").running


def test_stopping_twice_is_no_error(fake, manager, job):
    manager.install(job)
    manager.stop("night")
    manager.stop("night")


def test_a_job_that_does_not_end_after_sigterm_is_named_with_the_way_out(fake, manager, job):
    manager.install(replace(job, exit_timeout=1))
    fake.set(teardown=1000)
    assert "uninstall" in said(refused(manager.stop, "night"))


def test_starting_what_is_not_installed_says_so(fake, manager):
    assert "install first" in said(refused(manager.start, "night"))


def test_status_tells_pid_starts_and_the_last_end(fake, manager, job):
    manager.install(job)
    running = manager.known("night")
    manager.stop("night")
    ended = manager.known("night")

    assert (running.pid, running.starts, running.ending) == (4001, 1, "")
    assert (ended.pid, ended.ending) == (None, "ended normally")


def test_status_of_an_absent_job_says_why(fake, asking):
    assert "could not find service" in asking.known("night").trouble
    fake.set(disabled=[LABEL])
    assert "switched off" in asking.known("night").trouble


def test_a_folder_that_cannot_be_written_is_named(fake, manager, job):
    manager.places.definitions.parent.mkdir(parents=True)
    manager.places.definitions.write_text("a file in its place")
    assert "LaunchAgents" in said(refused(manager.install, job))


def test_a_property_list_that_plutil_refuses_is_not_installed(fake, manager, job, tmp_path):
    plutil = tmp_path / "bin" / "plutil"
    plutil.write_text('#!/bin/sh\necho "$2: Unexpected character"; exit 1\n')
    plutil.chmod(0o755)

    assert "Unexpected character" in said(refused(manager.install, job))
    assert list(manager.places.definitions.iterdir()) == []
    assert "bootstrap" not in fake.calls


def test_a_start_of_a_job_that_launchd_has_just_started_is_no_failure(fake, manager, job):
    manager.install(job)
    fake.set(kickstart=[37])
    manager.start("night")
    assert fake.state["jobs"][LABEL]["runs"] == 1


def test_a_start_while_launchd_is_busy_is_tried_until_the_job_runs(fake, manager, job):
    manager.install(job)
    manager.stop("night")
    fake.set(kickstart=[37, 37])
    manager.start("night")
    assert manager.known("night").running


def test_a_start_that_stays_refused_is_an_error(fake, manager, job):
    manager.install(job)
    manager.stop("night")
    fake.set(kickstart=[37] * 100)
    assert "operation already in progress" in said(refused(manager.start, "night"))
    fake.set(kickstart=[1])
    assert "not permitted" in said(refused(manager.start, "night"))


def keys(job: AgentJob) -> dict:
    return plistlib.loads(launchd.render(job))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=Schedule.words)
def test_launchds_manual_allows_every_key_and_value(schedule):
    assert mistakes(keys(replace(JOB, schedule=schedule))) == []


def test_the_schema_itself_finds_mistakes():
    assert mistakes({"Label": "x", "ProgramArguments": ["a"], "Umask": "077", "Nise": 1, "RunAtLoad": 1}) == [
        "Nise is no key of launchd", "Umask is '077'", "RunAtLoad is 1",
    ]  # fmt: skip


def test_a_failed_stallguard_is_restarted_a_finished_one_is_not():
    assert keys(JOB)["KeepAlive"] == {"SuccessfulExit": False}


def test_nothing_slows_the_training_down():
    found = keys(JOB)
    assert found["ProcessType"] == "Interactive"
    assert not {"Nice", "LowPriorityIO", "LowPriorityBackgroundIO"} & set(found)


def test_times_become_calendar_intervals():
    found = keys(replace(JOB, schedule=Schedule(at=("03:05", "23:00"))))

    assert found["StartCalendarInterval"] == [{"Hour": 3, "Minute": 5}, {"Hour": 23, "Minute": 0}]
    assert found["RunAtLoad"] is False


def test_the_training_writes_its_files_with_the_users_own_mask():
    assert b"Umask" not in launchd.render(JOB)


def test_launchd_waits_longer_than_stallguard_needs_to_end_a_training():
    assert exit_timeout(Config()) > sum((10.0, 20.0, 60.0))
    assert exit_timeout(Config(stop=StopLimits(grace=300.0))) >= 390
    assert keys(replace(JOB, exit_timeout=123))["ExitTimeOut"] == 123


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@given(words=st.lists(TEXT, max_size=4), schedule=st.sampled_from(SCHEDULES))
def test_a_command_line_is_read_back_as_it_was_written(words, schedule):
    job = replace(JOB, run=("--stop-at", "07:30", "--", *words), schedule=schedule)

    back = read_back(launchd.program(launchd.render(job)))

    assert back == ("night", schedule, job.run)


@given(st.binary(max_size=200))
def test_a_damaged_property_list_has_no_command_line(data):
    assert launchd.program(data) == ()


def test_a_long_interval_is_looked_at_by_the_calendar_because_its_timer_stands_still_in_sleep():
    found = keys(replace(JOB, schedule=Schedule(every=7 * 86400.0)))
    assert found["StartCalendarInterval"] == [{"Minute": 0}]
    assert "StartInterval" not in found
    both = keys(replace(JOB, schedule=Schedule(at=("23:05",), every=21600.0)))
    assert both["StartCalendarInterval"] == [{"Hour": 23, "Minute": 5}, {"Minute": 0}]


def test_a_short_interval_has_a_timer():
    found = keys(replace(JOB, schedule=Schedule(every=600.0)))
    assert found["StartInterval"] == 600
    assert "StartCalendarInterval" not in found

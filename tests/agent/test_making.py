"""From what the user typed to a job that needs nothing but itself."""

from __future__ import annotations

import sys

import pytest
from msgspec.structs import replace

from stallguard import notify
from stallguard.agent.job import Schedule, checked_name, exit_timeout, schedule
from stallguard.agent.making import Asked, environment, make
from stallguard.agent.places import SYSTEMD, places
from stallguard.config import Config
from stallguard.errors import USAGE, StallguardError
from stallguard.report import aside
from stallguard.supervisor import child, session

ENV = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": ""}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text("")
    return tmp_path


def made(project, *words, options=(), env=ENV):
    asked = Asked("night", Schedule(), options, words)
    return make(asked, Config(), env, project, places(SYSTEMD, {}, project))


def test_script_and_interpreter_become_absolute_and_arguments_stay(project, tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    found = made(project, "train.py", "--data", "x", env=ENV | {"VIRTUAL_ENV": str(tmp_path)})

    assert found.job.run == ("--python", str(python), "--", str(project / "train.py"), "--data", "x")
    assert found.interpreters == (sys.executable, str(python)), (
        "the link leads into the environment: it is kept"
    )
    assert found.job.cwd == str(project)


def test_a_module_is_found_from_the_working_directory(project):
    assert made(project, "-m", "package.train").job.run[-2:] == ("-m", "package.train")


def test_a_program_is_found_on_path(project):
    found = made(project, "sh", "-c", "true")
    assert found.job.run[-3] in ("/usr/bin/sh", "/bin/sh")
    assert "--python" not in found.job.run


def test_options_are_handed_on_and_python_is_given_once(project):
    options = ("--stop-at", "07:30", "--python", "mine", "--observe")
    run = made(project, "train.py", options=options).job.run
    assert run[:3] == ("--stop-at", "07:30", "--observe")
    assert run.count("--python") == 1


def test_what_cannot_run_is_refused_before_anything_is_installed(project):
    for words in ((), ("nothing.py",), ("-m",)):
        with pytest.raises(StallguardError):
            made(project, *words)


def test_a_trainings_variables_are_kept_and_secrets_are_not():
    env = {"PATH": "/usr/bin:relative::/bin:/usr/bin", "KERAS_BACKEND": "torch", "TF_X": "1", "AWS_SECRET": "s",
           "HOME": "/home/me", "STALLGUARD_STOP__GRACE": "9s", "STALLGUARD_SOCKET": "/tmp/x"}  # fmt: skip

    assert environment(env, ("HOME", "MODE=a=b")) == {
        "PATH": "/usr/bin:/bin", "KERAS_BACKEND": "torch", "TF_X": "1", "STALLGUARD_STOP__GRACE": "9s",
        "LANG": "en_US.UTF-8", "PYTHONUNBUFFERED": "1", "HOME": "/home/me", "MODE": "a=b",
    }  # fmt: skip


def test_a_variable_that_is_not_set_is_refused():
    with pytest.raises(StallguardError) as caught:
        environment({}, ("TOKEN",))
    assert caught.value.code == USAGE


@pytest.mark.parametrize("name", ["", "Night Job", "a/b", "../x", "-x", "ü", "x" * 50])
def test_a_name_that_is_no_file_name_everywhere_is_refused_with_a_better_one(name):
    with pytest.raises(StallguardError) as caught:
        checked_name(name)
    assert checked_name(caught.value.cure.removeprefix("try --name ")) != name


def test_times_are_sorted_and_told():
    found = schedule(("23:00", "7:05", "login", "23:00"), "6h")
    assert found == Schedule(at=("07:05", "23:00"), login=True, every=21600.0)
    assert found.words() == "daily at 07:05 and 23:00, at login, every 6h"


@pytest.mark.parametrize(
    ("at", "every"), [(("noon",), None), (("25:00",), None), ((), "5s"), ((), "never"), ((), "x")]
)
def test_what_is_no_time_is_refused(at, every):
    with pytest.raises(StallguardError) as caught:
        schedule(at, every)
    assert caught.value.code == USAGE


def test_a_service_manager_waits_longer_than_our_own_way_of_ending_takes():
    ours = Config().stop
    the_trainings_end = ours.grace + ours.saving_wait + ours.kill_wait
    our_own_end = (
        child.GRACE + child.KILLED + session.LAST_WORDS + aside.PATIENCE + notify.FAREWELL
    )  # one after another
    assert exit_timeout(Config()) > the_trainings_end + our_own_end
    patient = replace(ours, saving_wait=3600.0)
    assert exit_timeout(replace(Config(), stop=patient)) > 3600 + our_own_end

"""From what the user typed to a job that needs nothing but itself."""

from __future__ import annotations

import plistlib
import re
import sys
from pathlib import Path

import pytest

import stallguard
from stallguard.agent import launchd, systemd
from stallguard.agent.job import Schedule
from stallguard.agent.job_builder import JobRequest, environment, make
from stallguard.agent.service_manager import SYSTEMD, places
from stallguard.config import Config
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError

ENV = {"PATH": "/usr/bin:/bin", "VIRTUAL_ENV": ""}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.py").write_text("")
    return tmp_path


def made(project, *words, options=(), env=ENV):
    asked = JobRequest("night", Schedule(), options, words)
    return make(asked, Config(), env, project, places(SYSTEMD, {"HOME": str(project)}))


def test_script_and_interpreter_become_absolute_and_arguments_stay(project, tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    found = made(project, "train.py", "--data", "x", env=ENV | {"VIRTUAL_ENV": str(tmp_path)})

    assert found.job.run == ("--python", str(python), "--", str(project / "train.py"), "--data", "x")
    assert found.interpreters == (sys.executable, str(python)), "the link leads into the environment: it is kept"
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


OURS = re.compile(r"\b(?:export )?([A-Z][A-Z_]{4,})=[\w$]")  # in advice and findings


def test_every_variable_that_we_advise_is_kept():
    package = Path(stallguard.__file__).parent
    texts = [path.read_text() for path in (package / "core/diagnosis").glob("*.py")]
    texts += [path.read_text() for path in (package / "doctor").glob("*.py")]
    advised = {name for text in texts for name in OURS.findall(text)} - {"PATH"}
    assert "AGX_RELAX_CDM_CTXSTORE_TIMEOUT" in advised
    assert advised - environment(dict.fromkeys(advised, "1"), ()).keys() == set()


@pytest.mark.parametrize(
    "name",
    ["TURN_OFF_REMAPPER", "MPS_DEVICE_CACHE_SIZE", "PYENV_VERSION", "DYLD_LIBRARY_PATH", "PYTORCH_ENABLE_MPS_FALLBACK"],
)
def test_what_a_training_on_a_mac_depends_on_is_kept(name):
    assert environment({name: "x"}, ())[name] == "x"


@pytest.mark.parametrize("words", [("train.py",), ("python3", "train.py")], ids=["chosen", "named"])
def test_a_shim_is_asked_for_its_interpreter_which_is_stored(project, words):
    shims = project / "shims"
    shims.mkdir()
    shim = shims / "python3"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    run = made(project, *words, env={"PATH": f"{shims}:/usr/bin:/bin"}).job.run
    assert sys.executable in run
    assert str(shim) not in run


def test_a_shim_without_an_interpreter_is_refused_with_its_own_words(project):
    shims = project / "shims"
    shims.mkdir()
    (shims / "python3").write_text("#!/bin/sh\necho 'pyenv: version 3.9.1 is not installed' >&2\nexit 1\n")
    (shims / "python3").chmod(0o755)
    with pytest.raises(StallguardError) as caught:
        made(project, "train.py", env={"PATH": f"{shims}:/usr/bin:/bin"})
    assert caught.value.code == CANNOT_RUN
    assert "version 3.9.1 is not installed" in "\n".join(caught.value.lines())


def test_a_wrapper_of_the_users_own_is_left_alone(project):
    wrapper = project / "python3"
    wrapper.write_text("#!/bin/sh\nexit 1\n")
    wrapper.chmod(0o755)
    assert str(wrapper) in made(project, "train.py", env={"PATH": f"{project}:/usr/bin:/bin"}).job.run


@pytest.mark.parametrize(
    "folder", ["a\nExecStartPre=/bin/touch x", "ends with \\", "ends ", "bell\a", "not utf-8 \udce4"]
)
def test_a_folder_that_no_definition_can_hold_is_refused_with_the_reason(project, folder):
    place = project / folder
    place.mkdir(parents=True)
    (place / "train.py").write_text("")
    with pytest.raises(StallguardError) as caught:
        made(place, "train.py")
    assert caught.value.code == CANNOT_RUN
    assert "the working directory" in caught.value.lines()[0]
    assert "cannot contain" in "\n".join(caught.value.lines())


@pytest.mark.parametrize("word", ["\x1b[31m", "\x7f", "\udcff"])
def test_an_argument_or_variable_that_no_definition_can_hold_is_refused(project, word):
    for words, env in (((word,), ENV), ((), ENV | {"TF_X": word})):
        with pytest.raises(StallguardError) as caught:
            made(project, "train.py", *words, env=env)
        assert caught.value.code == CANNOT_RUN


def test_line_breaks_in_arguments_reach_the_training_as_they_are(project):
    job = made(project, "train.py", "a\nb\tc").job
    assert plistlib.loads(launchd.render(job))["ProgramArguments"][-1] == "a\nb\tc"
    assert systemd.program(systemd.service_text(job))[-1] == "a\nb\tc"

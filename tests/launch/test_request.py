"""The request of a run: its name, its project, what is written before the start, and what is refused."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from stallguard import config
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.launch import request
from stallguard.launch.request import name_of, prepare, project_of
from stallguard.storage import run_files


def loaded(**flags: object) -> config.Loaded:
    paths = {path.replace("__", "."): raw for path, raw in flags.items()}
    return config.load(paths, {"HOME": "/nowhere"}, Path("/"))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("train.py --epochs 3", "train"), ("python -u a/b.py x.sh", "b"), ("-m pkg.sub.train", "train"),
        ("bash train.sh", "train"), ("./program --fast", "program"), ("python -m torch.run", "run"),
    ],
)  # fmt: skip
def test_a_run_is_named_by_its_script(words: str, name: str) -> None:
    assert name_of(tuple(words.split())) == name


def test_the_project_is_the_root_that_the_settings_name_and_holds_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    assert project_of(loaded(), tmp_path) == ""
    assert project_of(loaded(store__project=".."), tmp_path / "sub") == str(tmp_path / "sub" / "..")
    with pytest.raises(StallguardError, match="is not below") as refused:
        project_of(loaded(store__project="sub"), tmp_path)
    assert refused.value.code == USAGE


def test_what_is_started_is_written_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    made = prepare(("true", "x"), loaded(policy__max_restarts=7), {"PATH": "/usr/bin:/bin"}, tmp_path, name="night")

    kept = run_files.asked(made.run)
    assert kept is not None
    assert (kept.command, kept.cwd, kept.config["policy"]["max_restarts"]) == (["true", "x"], str(tmp_path), 7)
    assert made.run.id.endswith("-night")
    assert "true is not a Python program" in kept.outside


@pytest.mark.parametrize(
    ("limit", "words"), [(resource.RLIMIT_AS, "the address space"), (resource.RLIMIT_NOFILE, "open files")]
)
def test_limits_below_what_stallguard_needs_are_refused_with_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, words: str
) -> None:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(request.sys, "platform", "linux")
    plain = resource.getrlimit
    monkeypatch.setattr(request.resource, "getrlimit", lambda one: (10, 10) if one == limit else plain(one))

    with pytest.raises(StallguardError, match=words) as refused:
        prepare(("true",), loaded(), {"PATH": "/usr/bin:/bin"}, tmp_path)
    assert refused.value.code == CANNOT_RUN
    assert not list((tmp_path / "home").glob("runs/*"))

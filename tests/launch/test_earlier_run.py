"""Which earlier run a new one goes on from, and what it gets of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from stallguard.errors import StallguardError
from stallguard.launch import earlier_run
from stallguard.storage import paths, run_files
from stallguard.storage.paths import RunDir

ARGV = ["/bin/python", "train.py"]
GENERATION = "a1b2-1/fit-0001/g1/facts.json"
PLACE = Path("/work")
ENDED_PROCESS = run_files.Identity(pid=1, started=0.0)
Make = Callable[..., RunDir]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make runs that are over."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    number = iter(range(100))

    def made(
        argv: list[str] = ARGV, code: int | None = 75, text: str = "x", who: run_files.Identity = ENDED_PROCESS
    ) -> RunDir:
        run = paths.new_run("train", f"20261121-0000{next(number):02}")
        run_files.write(
            run.asked,
            run_files.RunRequest(
                schema=1, id=run.id, command=["train.py"], argv=argv, cwd=str(PLACE), began="", supervisor=who
            ),
        )  # fmt: skip
        if code is not None:
            end = run_files.Outcome(1, code, "", "", 1.0, 1, 0, 1, 0.0)
            run_files.write(run.path / "outcome.json", end)
        if text:
            (run.checkpoints / GENERATION).parent.mkdir(parents=True)
            (run.checkpoints / GENERATION).write_text(text)
        return run

    return made


def test_last_is_the_newest_of_the_same_command_that_left_a_checkpoint(make: Make) -> None:
    make(text="old")
    wanted = make(text="new")
    make(text="")
    make(argv=["/bin/python", "other.py"])

    assert earlier_run.heritage("last", ARGV, PLACE).id == wanted.id


def test_a_run_can_be_named(make: Make) -> None:
    wanted = make()
    make()

    assert earlier_run.heritage(wanted.id, ARGV, PLACE).id == wanted.id
    assert earlier_run.heritage(wanted.id, ["/other/python", "train.py"], PLACE).id == wanted.id


@pytest.mark.parametrize(
    ("argv", "place"), [(["/bin/python", "train.py", "--epochs", "20"], PLACE), (ARGV, Path("/elsewhere"))]
)
def test_the_checkpoints_of_another_command_are_refused(make: Make, argv: list[str], place: Path) -> None:
    wanted = make()
    with pytest.raises(StallguardError, match=r"belong to another command: train\.py, in /work") as found:
        earlier_run.heritage(wanted.id, argv, place)
    assert found.value.code == 2


def test_nothing_to_go_on_from_is_an_error_with_its_code(make: Make) -> None:
    make(text="")
    with pytest.raises(StallguardError) as found:
        earlier_run.heritage("last", ARGV, PLACE)
    assert found.value.code == 3


def test_a_run_that_goes_on_is_not_taken_from(make: Make) -> None:
    me = run_files.identity(os.getpid())
    run = make(code=None, who=me)
    with pytest.raises(StallguardError, match="still alive"):
        earlier_run.heritage(run.id, ARGV, PLACE)


def test_the_earlier_run_keeps_its_checkpoints_when_the_new_one_replaces_them(make: Make) -> None:
    old, new = make(text="first night"), make(text="")
    earlier_run.take_over(old, new)
    mine = new.checkpoints / GENERATION
    assert mine.read_text() == "first night"

    draft = new.checkpoints / "draft"
    draft.write_text("second night")
    draft.replace(mine)

    assert (old.checkpoints / GENERATION).read_text() == "first night"


@pytest.mark.parametrize(("code", "goes_on"), [(0, False), (75, True), (124, True), (1, True), (None, True)])
def test_a_job_goes_on_from_what_did_not_finish(make: Make, code: int | None, goes_on: bool) -> None:
    run = make(code=code)
    found = earlier_run.unfinished(run.id, ["train.py"], PLACE)
    assert (found is not None) is goes_on
    assert earlier_run.unfinished(run.id, ["train.py", "--other"], PLACE) is None


def test_a_project_that_moved_is_the_same_command_also_with_another_interpreter(make: Make) -> None:
    def moved(root: str) -> RunDir:
        run = make(argv=["/env/python", f"{root}/train.py", f"--data={root}/data"])
        asked = run_files.asked(run)
        assert asked is not None
        config = {"store": {"project": root}}
        run_files.write(run.asked, msgspec.structs.replace(asked, cwd=f"{root}/jobs", config=config))
        return run

    run, root = moved("/Users/a/project"), "/home/b/xyz"
    argv = ["/other/python", f"{root}/train.py", f"--data={root}/data"]
    assert earlier_run.heritage("last", argv, Path(root, "jobs"), root).id == run.id
    assert earlier_run.heritage(run.id, argv, Path(root, "jobs"), root).id == run.id
    for other in (
        (argv, Path(root, "jobs"), ""),
        (argv, Path(root), root),
        ([argv[0], "/x.py", *argv[2:]], Path(root, "jobs"), root),
    ):
        with pytest.raises(StallguardError, match="belong to another command"):
            earlier_run.heritage(run.id, *other)

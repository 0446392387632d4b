"""Each Python process of a run has a place that the next attempt finds again, and no other process gets."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallguard.launch.environment import keep_reference
from stallguard.probe import process_key

# One write a line, also if the environment makes Python's output unbuffered: processes side by side share a pipe.
SAYS = "import os; os.write(1, (os.environ['STALLGUARD_PLACE'] + '\\n').encode())"


def places(receiver, shell, **environment):
    """Return the places that the processes of a shell command print, in their order."""
    keep_reference(receiver.folder / "probe", receiver.environment(), "")
    heartbeat = receiver.run(["sh", "-c", shell], PY=sys.executable, SAYS=SAYS, **environment)
    assert heartbeat.code == 0, heartbeat.err
    return heartbeat.out.split()


def attempt(receiver, shell, number, **environment):
    return places(receiver, shell, token=number, **environment)


@pytest.mark.costly
@pytest.mark.parametrize(
    "shell",
    [
        'for s in 1 2 3; do "$PY" -c "$SAYS" $s; done',
        'for s in 1 2 3; do SEED=$s "$PY" -c "$SAYS"; done',
        'for s in 1 2 3; do "$PY" -c "$SAYS"; done',
        'for s in a b; do mkdir -p $s; (cd $s && "$PY" -c "$SAYS"); done',
    ],
    ids=["arguments", "variables", "order", "directories"],
)
def test_trainings_of_one_run_differ_and_each_is_found_again(receiver, shell):
    first, second = attempt(receiver, shell, 1), attempt(receiver, shell, 2)
    assert first == second
    assert len(set(first)) == len(first) > 1


def test_what_changes_with_every_start_is_no_part_of_it(receiver):
    first = attempt(receiver, 'MASTER_PORT=1 RUN_PID=7 "$PY" -c "$SAYS"', 1)
    second = attempt(receiver, 'MASTER_PORT=2 RUN_PID=8 "$PY" -c "$SAYS"', 2)
    assert first == second


@pytest.mark.costly
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("-f /tmp/tmptoaj1mv1.json", "-f /tmp/tmp_k9x2b7q.json"),
        ("-f /var/folders/zz/T/tmpa1b2c3d4.json", "-f /var/folders/zz/T/tmp9z8y7x6w.json"),
        *(
            (start + name, start + name.translate(str.maketrans("0123", "4567")))
            for start in ("-f ", "--f=")
            for name in (
                "/home/a/.local/share/jupyter/runtime/kernel-0a1b2c3d-0123-4567-89ab-cdef01234567.json",
                "/Users/a/Library/Jupyter/runtime/kernel-v30a1b2c3d45678901234567890123456789abcdef.json",
            )
        ),
    ],
)
def test_the_connection_file_of_a_notebooks_kernel_is_no_part_of_it(receiver, first, second):
    shell = '"$PY" -c "$SAYS" {}'
    assert attempt(receiver, shell.format(first), 1) == attempt(receiver, shell.format(second), 2)


@pytest.mark.parametrize("word", ["runs/{}.json", "/data/tmp-{}.json", "/data/kernel-{}.json", "/tmp/tmptoaj1mv{}"])
def test_a_settings_file_of_another_name_is_another_training(receiver, word):
    shell = '"$PY" -c "$SAYS" ' + word
    assert attempt(receiver, shell.format(1), 1) != attempt(receiver, shell.format(2), 2)


def test_a_batch_size_that_stallguard_gave_is_no_part_of_it(receiver):
    first = attempt(receiver, '"$PY" -c "$SAYS" --batch=512 15120', 1, rows=512)
    second = attempt(receiver, '"$PY" -c "$SAYS" --batch=256 15120', 2, rows=256)
    assert first == second


def test_words_that_stallguard_added_are_no_part_of_it(receiver):
    first = attempt(receiver, '"$PY" -c "$SAYS" --lr 1', 1)
    added = '--resume "out/step 5"'
    assert attempt(receiver, f'"$PY" -c "$SAYS" --lr 1 {added}', 2, added=added) == first
    assert attempt(receiver, f'"$PY" -c "$SAYS" --lr 1 {added}', 3) != first


@pytest.mark.parametrize("word", ["runs/exp256/data", "--data=runs/exp256/data", "--size=a/b=512"])
def test_a_number_in_a_path_is_no_batch_size(receiver, word):
    """It is the same in each attempt: without it in one of them the training would start from scratch."""
    first = attempt(receiver, f'"$PY" -c "$SAYS" {word}', 1, rows=512)
    second = attempt(receiver, f'"$PY" -c "$SAYS" {word.replace("512", "256")}', 2, rows=256)
    assert first == second


def test_another_terminal_is_no_other_training(receiver, monkeypatch):
    first = attempt(receiver, '"$PY" -c "$SAYS"', 1)
    monkeypatch.setenv("WINDOW_TITLE", "another")  # of the whole run, not of one process
    assert attempt(receiver, '"$PY" -c "$SAYS"', 2) == first


@pytest.mark.costly
def test_starts_at_one_instant_get_different_numbers(receiver):
    started = 'for s in 1 2 3 4 5 6 7 8; do "$PY" -c "$SAYS" & done; wait'
    found = places(receiver, started)
    assert sorted(name.rpartition("-")[2] for name in found) == list("12345678")
    assert len({name.rpartition("-")[0] for name in found}) == 1


PROJECTS = ("/Users/a/project", "/home/b/fleet/code/0af3/job")


def key_in(root, delta=None, words=("{root}/train.py", "--data={root}/data:{root}", "x"), below="/jobs", project=None):
    arguments = [word.format(root=root) for word in words]
    return process_key.key(arguments, root + below, delta or {}, "", root if project is None else project)


def test_a_project_elsewhere_has_the_same_key_and_another_folder_or_argument_in_it_another():
    assert len({key_in(root) for root in PROJECTS}) == 1
    assert len({key_in(root, project="") for root in PROJECTS}) == 2
    others = (
        {"below": "/other"},
        {"words": ("{root}/train2.py",)},
        {"words": ("{root}2/train.py",)},
        {"delta": {"A": "1"}},
    )
    assert len({key_in(PROJECTS[0], **other) for other in ({}, *others)}) == 5


def test_what_describes_a_machine_is_no_part_of_it_if_the_project_can_move():
    def changed(root, **variables):
        return process_key.digests({"OUT": f"{root}/out", "SEED": "1", **variables}, root)

    first = changed(PROJECTS[0], HOME="/Users/a", USER="a", PATH="/a/bin", VIRTUAL_ENV="/a/env", CONDA_PREFIX="/a")
    assert first == changed(PROJECTS[1], HOME="/home/b", USER="b", PATH="/b/bin")
    assert first != changed(PROJECTS[1], SEED="2")
    assert len(process_key.digests({"HOME": "/a", "PATH": "/b"}, "")) == 2


def test_without_the_projects_root_a_key_is_what_it_was():
    """Checkpoints of earlier versions are found by it."""
    assert process_key.key(["train.py", "--out=/a/b"], "/a", {"SEED": "0"}) == "e13d0c1f3b95720e"


@given(
    st.lists(st.sampled_from(["/a/b", "/a/bc", "/x/a/b", "/a/b/c", "=", ":", " ", "x", "file://", ".", "-"])).map(
        "".join
    )
)
def test_only_whole_paths_of_the_project_are_replaced(text):
    made = process_key.portable(text, "/a/b")
    assert made.replace("{project}", "/a/b") == text
    assert "{project}c" not in made
    assert "x{project}" not in made
    assert process_key.portable(text, "") == text


@pytest.mark.parametrize("path", ["/a/b", "/a/b/c/d.log", "/a/bc", "/other", "csv 0"])
def test_a_path_comes_back_on_another_machine(path):
    moved = process_key.native(process_key.portable(path, "/a/b"), "/z")
    below = path == "/a/b" or path.startswith("/a/b/")
    assert moved == (path.replace("/a/b", "/z") if below else path)


def test_a_link_to_the_project_is_the_project(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    text = f"{tmp_path}/real/x {tmp_path}/link/x"
    assert process_key.portable(text, str(tmp_path / "link")) == "{project}/x {project}/x"


def test_a_secret_of_the_environment_is_not_written_down(receiver):
    keep_reference(receiver.folder / "probe", {"API_KEY": "hunter2hunter2"}, "")
    file: Path = receiver.folder / "probe" / process_key.REFERENCE
    assert "hunter2" not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0

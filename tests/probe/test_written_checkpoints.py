"""The list of the script's own checkpoints: which are whole."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest

from stallguard.probe import written_checkpoints
from stallguard.probe.written_checkpoints import NAME, damage, files_of, newest_whole, read, write


def saved(folder, number, full=1):
    """Return the record of a folder with three files."""
    folder.mkdir()
    for name, size in (("model.bin", 3000), ("optimizer.bin", 6000), ("random.pkl", 70)):
        (folder / name).write_bytes(random.Random(number).randbytes(size))
    return {"path": str(folder), "full": full, "batches": number, "files": files_of(str(folder))}


@pytest.mark.parametrize("seed", range(20))
def test_of_two_the_older_one_is_used_if_the_newest_was_cut(tmp_path, seed):
    older, newest = saved(tmp_path / "step_1", 1), saved(tmp_path / "step_2", 2)
    chance = random.Random(seed)
    path = chance.choice(sorted((tmp_path / "step_2").iterdir()))
    os.truncate(path, chance.randrange(path.stat().st_size))
    damaged = []
    assert newest_whole([older, newest], damaged) is older
    assert len(damaged) == 1
    assert path.name in damaged[0]


def test_what_was_changed_without_another_size_is_not_whole(tmp_path):
    record = saved(tmp_path / "step_1", 1)
    path = tmp_path / "step_1" / "model.bin"
    path.write_bytes(bytes(3000))
    assert damage(record) == "model.bin does not match its checksum"


def test_a_large_one_is_compared_by_its_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(written_checkpoints, "CHECKED", 9000)
    record = saved(tmp_path / "step_1", 1)
    assert record["files"]["model.bin"] == [3000]
    assert not damage(record)
    (tmp_path / "step_1" / "random.pkl").unlink()
    assert damage(record) == "random.pkl is missing"


def test_one_whose_save_has_not_ended_is_not_whole(tmp_path):
    record = saved(tmp_path / "step_1", 1)
    del record["files"]
    assert damage(record) == written_checkpoints.CUT
    assert newest_whole([record], []) is None


def test_weights_alone_are_used_only_if_there_is_nothing_else(tmp_path):
    older, newest = saved(tmp_path / "step_1", 1), saved(tmp_path / "best", 2, full=0)
    assert newest_whole([older, newest], []) is older
    assert newest_whole([newest], []) is newest


def test_one_that_the_script_has_removed_is_no_damage(tmp_path):
    older, newest = saved(tmp_path / "step_1", 1), saved(tmp_path / "step_2", 2)
    shutil.rmtree(newest["path"])
    damaged = []
    assert newest_whole([older, newest], damaged) is older
    assert not damaged


def test_the_list_is_read_back_and_stays_short(tmp_path):
    records = [{"path": str(number)} for number in range(40)]
    write(str(tmp_path / "process"), records)
    assert read(str(tmp_path / "process")) == records[-32:]


@pytest.mark.parametrize("text", ["", "[", "{}", '[{"path": 3}, 5]', '[{"path": "a", "full": "b"}]', json.dumps(["x"])])
def test_a_list_that_is_damaged_has_nothing(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    assert read(str(tmp_path)) == []

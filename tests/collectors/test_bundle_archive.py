"""A run in one file: its texts, without secrets, and nothing else."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from stallguard.collectors import bundle_archive
from stallguard.collectors.redact import Redactor
from stallguard.storage.paths import RunDir

SECRET = "hunter2-of-mine"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run with files of each kind."""
    made = RunDir(tmp_path / "20260307-train")
    files = {
        "run.json": json.dumps({"command": ["train.py", "--token", SECRET]}),
        "outcome.json": '{"token": "' + SECRET,  # cut by a kill
        "output.log": f"token={SECRET}\nepoch 1\n",
        "report.html": "<p>", "checkpoints/1/facts.json": "{}", "probe/7.page": "x",
    }  # fmt: skip
    for name, text in files.items():
        (made.path / name).parent.mkdir(parents=True, exist_ok=True)
        (made.path / name).write_text(text)
    (tmp_path / "elsewhere.log").write_text("of another user")
    (made.path / "linked.log").symlink_to(tmp_path / "elsewhere.log")
    return made


def packed(run: RunDir) -> tuple[bundle_archive.Contents, dict[str, str]]:
    """Return what is said to be in the pack of a run, and what is in it."""
    into = io.BytesIO()
    contents = bundle_archive.pack(run, Redactor({}), into)
    into.seek(0)
    with tarfile.open(fileobj=into) as archive:
        found = {one.name.partition("/")[2]: archive.extractfile(one) for one in archive}
        return contents, {name: file.read().decode() for name, file in found.items() if file}


def test_the_texts_of_a_run_are_packed_without_secrets(run: RunDir) -> None:
    contents, texts = packed(run)
    assert set(texts) == {"run.json", "outcome.json", "output.log", "bundle.json"}
    assert SECRET not in "".join(texts.values())
    assert json.loads(texts["run.json"])["command"][:2] == ["train.py", "--token"]
    assert "epoch 1" in texts["output.log"]
    assert contents.removed == {"secret": 3}
    assert json.loads(texts["bundle.json"])["removed"] == {"secret": 3}


def test_of_a_long_file_the_end_is_packed(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_archive, "FILE_MAX", 20)
    contents, texts = packed(run)
    assert texts["output.log"] == "epoch 1\n"
    assert {one.name: one.cut for one in contents.files}["output.log"]

"""Files that others can write: one whose values are nested too deeply is one that is damaged, and costs no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard import config
from stallguard.agent import job_memory
from stallguard.cli import logs
from stallguard.errors import USAGE, StallguardError
from stallguard.report import evidence_files, journal_record
from stallguard.storage import journal, learned_store, run_files
from stallguard.storage.paths import RunDir

DEEP = '{"x": ' + "[" * 100_000


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run whose every file is damaged so."""
    made = RunDir(tmp_path / "runs" / "one")
    made.path.mkdir(parents=True)
    for name in ("run.json", "outcome.json", "attempt.json", "manifest.json", "journal.jsonl"):
        (made.path / name).write_text(DEEP + "\n")
    return made


def test_a_run_whose_files_are_nested_too_deeply_is_a_damaged_run(run: RunDir) -> None:
    assert (run_files.asked(run), run_files.outcome(run), run_files.recall_attempt(run)) == (None, None, None)
    assert run_files.state(run) == "lost"
    assert list(journal.events(run.journal)) == []
    assert journal_record.read(run.journal).happened == []
    assert evidence_files.manifest(run.path) == evidence_files.KeptManifest()
    assert logs.as_text(DEEP.encode()) is None


def test_what_a_job_remembers_is_damaged_which_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    job_memory.file("night").parent.mkdir()
    job_memory.file("night").write_text(DEEP)
    past = job_memory.recall("night")
    assert past.damaged
    assert str(job_memory.file("night")) in past.trouble


def test_what_was_learned_is_left_aside_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path))
    key = learned_store.key_of(("train.py",), tmp_path)
    path = learned_store._path(key)
    path.parent.mkdir(parents=True)
    path.write_text(DEEP)
    said: list[str] = []
    assert learned_store.load(key, said.append) is None
    assert len(said) == 1


def test_settings_that_are_nested_too_deeply_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "stallguard.toml").write_text("x = " + "[" * 100_000)
    with pytest.raises(StallguardError) as caught:
        config.load({}, {"HOME": str(tmp_path)}, tmp_path)
    assert (caught.value.code, "not TOML" in caught.value.why) == (USAGE, True)


LATIN = "# f\xfcr die Nacht\n[tool.stallguard.run]\nobserve = true\n"


def test_a_shared_file_in_latin_1_is_said_and_left_aside(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(LATIN.encode("latin-1"))
    loaded = config.load({}, {"HOME": str(tmp_path)}, tmp_path)
    assert loaded.config.run.observe is False
    [said] = loaded.ignored
    assert "pyproject.toml" in said
    assert "UTF-8" in said


def test_one_that_has_no_settings_of_ours_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes("# f\xfcr alle\n".encode("latin-1"))
    assert config.load({}, {"HOME": str(tmp_path)}, tmp_path).ignored == ()

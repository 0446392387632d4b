"""The words with which a script goes on from its own checkpoint."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stallguard.config.table import Config
from stallguard.errors import USAGE, StallguardError
from stallguard.launch.resume_words import check, of_attempt
from stallguard.probe.written_checkpoints import files_of, write

WANTED = "--resume --from='{checkpoint}'"


def wants(words: str, **checkpoint: bool) -> Config:
    config = Config()
    return msgspec.structs.replace(
        config,
        policy=msgspec.structs.replace(config.policy, resume_with=words),
        checkpoint=msgspec.structs.replace(config.checkpoint, **checkpoint),
    )


def saves(checkpoints: Path, place: str, file: Path, *, ends: bool = True) -> None:
    """Have a process save a file."""
    file.write_bytes(b"1234")
    record = {"path": str(file), "full": 1, "batches": 1, **({"files": files_of(str(file))} if ends else {})}
    write(str(checkpoints / place), [record])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("--resume '{checkpoint}", "no closing quotation"),
        ("  ", "no word"),
        ("--resume {chekpoint}", "{chekpoint} stands for nothing"),
    ],
)
def test_words_that_cannot_be_meant_are_one_error(words: str, why: str) -> None:
    with pytest.raises(StallguardError) as caught:
        check(wants(words))
    assert caught.value.code == USAGE
    assert why in caught.value.why
    assert "{checkpoint}" in caught.value.cure


def test_without_checkpoints_nothing_shows_what_is_whole() -> None:
    with pytest.raises(StallguardError):
        check(wants(WANTED, enabled=False))
    check(wants(WANTED))
    check(wants("", enabled=False))


def test_the_words_have_the_path_as_one_word(tmp_path: Path) -> None:
    saves(tmp_path / "c", "0123-1", tmp_path / "my last.pt")
    own = of_attempt(WANTED, tmp_path / "c")
    assert own.words == ("--resume", f"--from={tmp_path / 'my last.pt'}")
    assert own.added in own.text


def test_nothing_is_added_without_a_whole_checkpoint_of_one_process(tmp_path: Path) -> None:
    checkpoints = tmp_path / "c"
    assert "no process of this run has saved" in of_attempt(WANTED, checkpoints).text
    saves(checkpoints, "0123-1", tmp_path / "last.pt", ends=False)
    own = of_attempt(WANTED, checkpoints)
    assert not own.words
    assert "last.pt is not whole (its save was cut off)" in own.text
    saves(checkpoints, "0123-1", tmp_path / "last.pt")
    saves(checkpoints, "4567-1", tmp_path / "other.pt")
    own = of_attempt(WANTED, checkpoints)
    assert not own.words
    assert "several processes" in own.text


def test_without_the_setting_the_scripts_checkpoint_is_named_alone(tmp_path: Path) -> None:
    assert of_attempt("", tmp_path / "c").text == ""
    saves(tmp_path / "c", "0123-1", tmp_path / "last.pt")
    own = of_attempt("", tmp_path / "c")
    assert not own.words
    assert str(tmp_path / "last.pt") in own.text

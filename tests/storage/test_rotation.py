"""A file in parts never takes more room than it may, and keeps its beginning and its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stallguard.storage import rotation


@given(turns=st.integers(min_value=0, max_value=30), most=st.integers(min_value=2, max_value=6))
def test_the_beginning_and_the_newest_parts_stay(turns, most):
    kept: list[int] = []
    for _ in range(turns):
        number, too_old = rotation.plan(kept, most)
        kept = [old for old in (*kept, number) if old not in too_old]

    assert len(kept) <= most - 1
    assert kept[:1] == ([1] if turns else [])
    assert kept[1:] == list(range(turns + 1 - len(kept[1:]), turns + 1))


def test_the_files_are_turned_and_the_middle_deleted(tmp_path):
    path = tmp_path / "journal.jsonl"
    for text in "abcde":
        path.write_text(text)
        rotation.turn(path, 3)
    path.write_text("end")

    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        "journal.1.jsonl": "a", "journal.5.jsonl": "e", "journal.jsonl": "end",
    }  # fmt: skip


def test_another_file_beside_them_is_no_part(tmp_path):
    (tmp_path / "journal.old.jsonl").write_text("mine")
    path = tmp_path / "journal.jsonl"
    path.write_text("x")
    rotation.turn(path, 2)
    assert rotation.numbers(path) == [1]
    assert (tmp_path / "journal.old.jsonl").exists()

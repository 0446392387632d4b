"""Which batches survive is kept beside what a night taught: for the same script with any size."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallguard.core.learned import NO_SIZES, BatchSizes, leave_size
from stallguard.core.limits import PolicyLimits
from stallguard.launch.batch_option import unsized
from stallguard.storage import learned_store

KNOWN = BatchSizes(left={"32 rows": 1}, slices=2, rows=96)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("print('training')\n")
    return tmp_path


def key(place: Path, *words: str) -> learned_store.CommandKey:
    return learned_store.key_of(unsized(["python", "train.py", *words], PolicyLimits(batch_flag="-b")), place)


def test_what_is_known_of_sizes_holds_whichever_is_asked_for(place: Path) -> None:
    learned_store.keep_sizes(key(place, "-b", "512"), KNOWN)

    assert learned_store.sizes(key(place, "-b", "64"), print) == KNOWN
    assert learned_store.sizes(key(place, "-b", "64", "--deep"), print) == NO_SIZES
    assert learned_store.load(key(place, "-b", "512"), print) is None, "it is no measure of gaps"


def test_another_script_knows_nothing_and_a_damaged_file_is_reported(place: Path) -> None:
    learned_store.keep_sizes(key(place), KNOWN)
    (kept,) = (place / "home" / "learned").iterdir()
    kept.write_text("{")
    words: list[str] = []
    assert learned_store.sizes(key(place), words.append) == NO_SIZES
    assert len(words) == 1

    learned_store.keep_sizes(key(place), KNOWN)
    (place / "train.py").write_text("print('another')\n")
    assert learned_store.sizes(key(place), words.append) == NO_SIZES


def test_nothing_is_written_where_nothing_is_known(place: Path) -> None:
    learned_store.keep_sizes(key(place), NO_SIZES)
    assert not (place / "home").exists()


def test_what_no_trial_saw_survive_is_not_said_to_survive(place: Path) -> None:
    learned_store.keep_sizes(key(place), leave_size(NO_SIZES, 64, 1))
    (one,) = learned_store.everything()
    assert one.what == "left for a smaller batch: 64 rows (1 x)"

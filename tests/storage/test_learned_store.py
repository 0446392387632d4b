"""The second night starts wise: what was learned is kept, and dropped where it is not true any more."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stallguard.cli.tune import learned as verb
from stallguard.core.detection import detector
from stallguard.core.learned import BatchSizes, Learned
from stallguard.storage import learned_store
from tests.simulation.alone import Alone

DAY = 86400.0
NIGHT = 1.8e9  # seconds since the epoch


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    (tmp_path / "train.py").write_text("print('training')\n")
    return tmp_path


@pytest.fixture
def words():
    return []


def learned(seconds: float = 120) -> Learned:
    return detector.export(Alone().train(seconds).detector_state)


def key(place, *arguments: str) -> learned_store.CommandKey:
    return learned_store.key_of(["python", "train.py", *arguments], place)


def test_what_a_night_taught_is_there_the_next_night(place, words):
    assert learned_store.save(key(place), learned(), words.append, now=NIGHT)

    assert learned_store.load(key(place), words.append, now=NIGHT + DAY) == learned()
    assert words == []


def test_knowledge_of_two_months_ago_is_dropped(place, words):
    learned_store.save(key(place), learned(), words.append, now=NIGHT)

    assert learned_store.load(key(place), words.append, now=NIGHT + 59 * DAY) is not None
    assert learned_store.load(key(place), words.append, now=NIGHT + 61 * DAY) is None
    assert learned_store.load(key(place), words.append, now=NIGHT - DAY) is None


def test_other_arguments_and_an_edited_script_have_files_of_their_own(place, words):
    learned_store.save(key(place), learned(), words.append)
    assert learned_store.load(key(place, "--batch", "512"), words.append) is None

    (place / "train.py").write_text("print('a larger model')\n")
    assert learned_store.load(key(place), words.append) is None


def test_another_machine_has_files_of_its_own(place, words, monkeypatch):
    learned_store.save(key(place), learned(), words.append)
    monkeypatch.setattr("platform.node", lambda: "another")

    assert learned_store.load(key(place), words.append) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema": 1}', b"\xff\x00"])
def test_a_damaged_file_is_left_aside_with_a_word(place, words, damage):
    learned_store.save(key(place), learned(), words.append)
    (file,) = (place / "home" / "learned").glob("*.json")
    file.write_bytes(damage)

    assert learned_store.load(key(place), words.append) is None
    assert len(words) == 1
    assert learned_store.save(key(place), learned(), words.append)
    assert learned_store.load(key(place), words.append) is not None


def test_a_file_of_a_later_version_is_left_aside(place, words):
    learned_store.save(key(place), learned(), words.append)
    (file,) = (place / "home" / "learned").glob("*.json")
    file.write_bytes(file.read_bytes().replace(b'"schema":3', b'"schema":4', 1))

    assert learned_store.load(key(place), words.append) is None


def test_a_run_that_hardly_trained_does_not_overwrite_what_is_known(place, words):
    learned_store.save(key(place), learned(), words.append)

    assert not learned_store.save(key(place), learned(2), words.append)
    assert learned_store.load(key(place), words.append) == learned()


def test_a_place_that_cannot_be_written_costs_a_word_and_leaves_nothing_behind(place, words):
    (place / "home").write_text("a file where a directory should be")

    assert not learned_store.save(key(place), learned(), words.append)
    assert len(words) == 1


def test_no_temporary_file_is_left_behind(place, words):
    learned_store.save(key(place), learned(), words.append)

    assert len(list((place / "home" / "learned").iterdir())) == 1


def test_nothing_known_is_no_trouble(place, words):
    assert learned_store.load(key(place), words.append) is None
    assert words == []


def test_options_that_do_not_change_a_batch_are_no_other_script(place):
    def of(*options: str) -> learned_store.CommandKey:
        return learned_store.key_of(("python", "train.py", *options), place)

    assert of("--epochs", "2", "--size", "8") == of("--size", "8", "--epochs=3", "--resume")
    assert of("--size", "8") != of("--size", "16")


def test_what_is_kept_is_listed_and_can_be_forgotten(place, words):
    learned_store.save(key(place), learned(), words.append)
    learned_store.keep_sizes(key(place), BatchSizes(rows=512), words.append)

    announced = {one.what for one in learned_store.everything()}
    assert "up to 512 rows survive" in announced
    assert len(announced) == 2

    assert CliRunner().invoke(verb, ["show"]).output.count("train.py") == 2
    assert CliRunner().invoke(verb, ["forget", "train.py"]).exit_code == 0
    assert learned_store.everything() == []

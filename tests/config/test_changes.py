"""`stallguard config init` and `set`: what they write is a file that loads, and a wrong value leaves it as it was."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stallguard import config
from stallguard.cli.config import command
from stallguard.config.table import KEYS, all_keys, value_of
from stallguard.errors import USAGE, StallguardError

NOT_ONE = {  # by kind of value: what is none, or out of its range
    "TEXT": ("\0",),
    "": ("maybe", "2", ""),
    "HH:MM": ("25:00", "noon", "7"),
    "DURATION": ("abc", "-1", "5 parsecs", "inf", "nan", ""),
    "SIZE": ("abc", "-1", "5 XB", "1e400", "1" + "0" * 30, ""),
    "SHARE": ("abc", "-1", "200%", "1.5", "nan", ""),
    "NUMBER": ("abc", "-1", "inf", "nan", "1,5", ""),
    "COUNT": ("abc", "-1", "1.5", "1" + "0" * 30, ""),
}


def loaded(here) -> config.Config:
    return config.load({}, {"HOME": str(here.parent)}, here).config


def change(*words: str):
    return CliRunner().invoke(command, words)


def refused(*words: str) -> StallguardError:
    error = change(*words).exception
    assert isinstance(error, StallguardError), error
    assert error.code == USAGE
    return error


@pytest.mark.parametrize("taken_away", ["# ", "#"])
def test_a_new_file_loads_when_all_of_it_is_uncommented_and_changes_nothing(here, taken_away):
    assert change("init").exit_code == 0
    file = here / "stallguard.toml"
    file.write_text("".join(line.removeprefix(taken_away) for line in file.read_text().splitlines(True)))
    found = config.load({}, {"HOME": str(here.parent)}, here)
    assert found.config == config.Config()
    # A sign alone is what an editor takes away that leaves the blank after it.
    assert {path for path, origin in found.origins.items() if origin != "default"} == set(KEYS)


@pytest.mark.costly
def test_a_value_that_is_none_is_refused_for_each_setting_and_the_file_stays(here):
    file = here / "stallguard.toml"
    file.write_text("# mine\n")
    for key in all_keys().values():
        for value in NOT_ONE.get(key.kind.metavar, ("no-such=word",)):
            if key.kind.metavar == "LIST" and key.path == "notify.urls":
                continue  # any text can be an address
            what, *why = refused("set", key.path, value).lines()
            assert what == f"{key.path} cannot be {value!r}", "the message names an option that was not given"
            assert any(line.startswith(("expected ", "'no-such")) or "there is no" in line for line in why)
    assert file.read_text() == "# mine\n"


@pytest.mark.parametrize("name", ["run.segments", "run.max_time", "detector.slow_least", "keep.runs"])
def test_a_setting_of_which_none_is_senseless_is_not_0(here, name):
    # Segments of no time restart without end, and the mean of no measurements has no value.
    assert refused("set", name, "0").why.endswith(("one second or more", "1 or more"))


def test_an_unknown_setting_is_refused_with_the_nearest_name(here):
    assert "detector.patience" in refused("set", "detector.patence", "2").why
    assert not (here / "stallguard.toml").exists()


@pytest.mark.costly
def test_each_setting_can_be_written_with_its_own_default_as_it_is_shown(here):
    for key in KEYS.values():
        shown = "" if key.kind.show(key.default) == "-" else key.kind.show(key.default)
        assert change("set", key.path, shown).exit_code == 0, key.path
    assert loaded(here) == config.Config()


@pytest.mark.parametrize(
    ("name", "value", "read"),
    [
        ("policy.min_batch", "08", 8),
        ("detector.patience", "1e1", 10.0),
        ("keep.size", "1.5 GB", 1_500_000_000),
        ("notify.command", 'say "🎉\x7f" \\ \t', 'say "🎉\x7f" \\ \t'),
        ("notify.on", "stall, finish", ("stall", "finish")),
        ("policy.causes", "device-wait = halve", ("device-wait=halve",)),
        ("notify.urls", "json://a/?x=1,json://b", ("json://a/?x=1", "json://b")),
    ],
)
def test_what_is_written_is_what_is_read(here, name, value, read):
    result = change("set", name, value)
    assert result.exit_code == 0, result.exception
    assert value_of(loaded(here), name) == read


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[stop]  # mine\ngrace = '1s'\n", '[stop]  # mine\ngrace = "5s"\n'),
        ("[ stop ]\nbatch_wait = 3\n", '[ stop ]\ngrace = "5s"\nbatch_wait = 3\n'),
        ("[stop]\ngrace = 'soon'\n", '[stop]\ngrace = "5s"\n'),
    ],
)
def test_the_rest_of_a_file_stays(here, before, after):
    (here / "stallguard.toml").write_text(before)
    assert change("set", "stop.grace", "5s").exit_code == 0
    assert (here / "stallguard.toml").read_text() == after


def test_a_list_of_several_lines_is_replaced_as_a_whole(here):
    (here / "stallguard.toml").write_text('[notify]\non = [\n  "stall",  # [1]\n  "finish",\n]\ndesktop = false\n')
    assert change("set", "notify.on", "morning").exit_code == 0
    assert (here / "stallguard.toml").read_text() == '[notify]\non = ["morning"]\ndesktop = false\n'


@pytest.mark.parametrize("text", ["stop.grace = '1s'\n", "stop = { grace = '1s' }\n", "[stop\n"])
def test_a_file_in_another_form_is_left_as_it_is(here, text):
    (here / "stallguard.toml").write_text(text)
    assert 'stop.grace = "5s"' in refused("set", "stop.grace", "5s").cure
    assert (here / "stallguard.toml").read_text() == text


def test_a_setting_that_contradicts_another_of_the_file_is_refused(here):
    (here / "stallguard.toml").write_text("[policy]\nbatch = 32\n")
    assert "contradict" in refused("set", "policy.microbatches", "2").what
    assert (here / "stallguard.toml").read_text() == "[policy]\nbatch = 32\n"


def test_alone_the_verb_shows_the_settings(here):
    assert change().output == change("show").output != ""
    assert change().exit_code == 0


def test_the_list_of_verbs_shows_whole_summaries(here):
    assert "..." not in change("--help").output.partition("Commands:")[2]

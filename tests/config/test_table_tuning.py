"""The tuning table: rows, no settings; a file replaces some or all, and they can stand where settings stand."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from stallguard import config
from stallguard.cli.config import command
from stallguard.config.table import KEYS, json_schema, tuning_rows
from stallguard.core.limits import DetectorLimits, PhaseLimits, PhaseTable, Row, rows_of
from stallguard.errors import USAGE, StallguardError

MOST_SETTINGS = 70
UNITS = {"s", "x", "share", "cores", "bytes/s", "1/s", "count", "number"}


def load(here, flags=None, where="", **variables: str) -> config.Loaded:
    return config.load(flags or {}, {"HOME": str(here.parent), **variables}, here / where)


def refused(here, text: str) -> StallguardError:
    (here / "t.toml").write_text(text)
    with pytest.raises(StallguardError) as caught:
        load(here, {"detector.table": "t.toml"})
    assert caught.value.code == USAGE
    return caught.value


def written(here) -> str:
    assert CliRunner().invoke(command, ["init", "--tuning"], catch_exceptions=False).exit_code == 0
    return (here / "tuning.toml").read_text()


def test_rows_are_no_settings():
    assert not set(tuning_rows()) & set(KEYS)
    assert len(KEYS) <= MOST_SETTINGS
    assert list(json_schema()["properties"]["detector"]["properties"]) == ["patience", "table"]


def test_each_row_has_a_known_unit_and_a_meaning():
    known = [*rows_of(DetectorLimits).values(), *rows_of(PhaseLimits).values()]
    assert {row.unit for row in known} <= UNITS
    assert all(isinstance(row, Row) and row.meaning for row in [*known, *rows_of(PhaseTable).values()])
    assert len(rows_of(PhaseTable)) == len(PhaseTable.__struct_fields__)
    others = set(DetectorLimits.__struct_fields__) - set(rows_of(DetectorLimits))
    assert others == {"patience", "table", "rows"}


def test_a_written_table_changes_nothing_and_without_its_remarks_it_is_the_whole_table(here):
    text = written(here)
    assert load(here, {"detector.table": "tuning.toml"}).config.detector == DetectorLimits(table="tuning.toml")

    (here / "tuning.toml").write_text(re.sub(r"^# (?=[a-z_.0-9]+ = )", "", text, flags=re.MULTILINE))
    whole = load(here, {"detector.table": "tuning.toml"})

    assert whole.config.detector == DetectorLimits(table="tuning.toml")
    assert {path for path, origin in whole.origins.items() if "tuning.toml:" in origin} == set(tuning_rows())


def test_a_written_table_is_not_written_over(here):
    written(here)
    result = CliRunner().invoke(command, ["init", "--tuning"])
    assert isinstance(result.exception, StallguardError)


def test_a_table_replaces_some_rows_and_every_other_place_is_stronger(here):
    (here / "t.toml").write_text("idle_cpu = 0.5\ncap = '1m'\n[rows.step]\ndeadlock = '15s'\nspin = '3m'\n")
    (here / "stallguard.toml").write_text("[detector]\ntable = 't.toml'\nrows.step.spin = '4m'\n")

    loaded = load(here, STALLGUARD_DETECTOR__CAP="2m")

    found = loaded.config.detector
    assert (found.idle_cpu, found.cap, found.rows.step.deadlock, found.rows.step.spin) == (0.5, 120.0, 15.0, 240.0)
    assert found.rows.save == DetectorLimits().rows.save
    assert loaded.origins["detector.rows.step.deadlock"] == f"{here / 't.toml'}:4"
    assert here / "t.toml" in loaded.files, "a change of it must be seen in a live run"


@pytest.mark.parametrize("where", ["", "deep"])
def test_a_relative_table_is_beside_the_settings_that_name_it(here, where):
    (here / "deep").mkdir()
    (here / "t.toml").write_text("idle_cpu = 0.5\n")
    (here / "stallguard.toml").write_text("detector.table = 't.toml'\n")
    assert load(here, where=where).config.detector.idle_cpu == 0.5


def test_a_relative_table_of_an_option_is_in_the_directory_of_the_command(here):
    (here / "deep").mkdir()
    (here / "deep" / "t.toml").write_text("idle_cpu = 0.5\n")
    assert load(here, {"detector.table": "t.toml"}, "deep").config.detector.idle_cpu == 0.5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("idle_cpi = 1\n", ("no row idle_cpi", "t.toml:1", "idle_cpu")),
        ("patience = 2\n", ("no row patience",)),
        ("[rows.stap]\nspin = 1\n", ("no row rows.stap.spin", "rows.step.spin")),
        ("cap = 'soon'\n", ("detector.cap cannot be 'soon'", "a duration")),
        ("cap = \n", ("t.toml", "not TOML")),
    ],
)
def test_what_is_no_row_is_refused_with_its_place(here, text, words):
    error = refused(here, text)
    said = f"{error.what} {error.why}"
    assert all(word in said for word in words), said


def test_a_table_that_is_not_there_is_refused(here):
    with pytest.raises(StallguardError, match=r"nowhere\.toml") as caught:
        load(here, {"detector.table": "nowhere.toml"})
    assert caught.value.why == "there is no such file"


def test_a_row_is_shown_if_it_is_set(here):
    def shown() -> str:
        return CliRunner().invoke(command, ["show"], catch_exceptions=False).output

    assert "detector.cap" not in shown()
    (here / "stallguard.toml").write_text("[detector]\ncap = '90s'\n")
    assert "detector.cap" in shown()

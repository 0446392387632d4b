"""The report at a run's end comes from a process of its own, and never disturbs whoever asked for it."""

from __future__ import annotations

import sys

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stallguard.report import subprocess_writer
from tests import examples
from tests.report.nights import night, page

DAMAGED = ("journal.jsonl", "run.json", "outcome.json", "output.log", "incidents/1/manifest.json",
           "incidents/1/stacks.txt", "incidents/1/output.txt")  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return night(tmp_path_factory.mktemp("night"), minutes=3, stalls=1)


@pytest.mark.costly
def test_the_report_is_written_though_the_users_directory_holds_modules_of_our_names(run, tmp_path, monkeypatch):
    for name in ("click", "numpy", "stallguard", "html"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)

    assert subprocess_writer.write(run.path) == run.path / "report.html"
    assert (run.path / "report.html").read_text().rstrip().endswith("</html>")


def test_what_cannot_be_written_in_time_or_at_all_is_none_and_no_error(run, tmp_path, monkeypatch):
    assert subprocess_writer.write(tmp_path / "nowhere") is None
    assert subprocess_writer.write(run.path, seconds=0.01) is None
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert subprocess_writer.write(run.path) is None


@pytest.mark.costly
@example(damages=dict.fromkeys(DAMAGED, (40, b"\x80")))  # no UTF-8 inside a string of JSON
@settings(
    max_examples=examples.of(25, fast=5), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    damages=st.dictionaries(
        st.sampled_from(DAMAGED), st.tuples(st.integers(0, 200_000), st.binary(max_size=60)), min_size=1
    )
)
def test_whatever_is_damaged_there_is_a_report(run, tmp_path, damages):
    whole = {name: (run.path / name).read_bytes() for name in damages}
    try:
        for name, (place, garbage) in damages.items():
            at = place % (len(whole[name]) + 1)
            (run.path / name).write_bytes(whole[name][:at] + garbage + whole[name][at + len(garbage) :])
        made = page(run, tmp_path / "r.html")
    finally:
        for name, data in whole.items():
            (run.path / name).write_bytes(data)

    assert made.read_text("utf-8").rstrip().endswith("</html>")

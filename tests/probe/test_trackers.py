"""A restarted attempt writes into the TensorBoard directories of the attempt before, if only a time differs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from stallguard.probe.settings import ProbeSettings
from stallguard.probe.trackers import MOMENT, EarlierChoices, LogDirectories
from tests.guarded.runs import guard

SCRIPT = Path(__file__).parent / "children" / "boards.py"


@pytest.mark.tf
def test_directories_named_by_the_time_stay_those_of_the_first_attempt(tmp_path):
    done = guard(tmp_path / "home", "--set", "policy.backoff=0s", str(SCRIPT), cwd=tmp_path)

    assert done.code == 0, done.err
    given = [line.split()[1] for line in done.out.decode().splitlines() if line.startswith("given ")]
    assert len(set(given)) == done.outcome()["attempts"] == 2
    assert [str(path.relative_to(tmp_path)) for path in (tmp_path / "logs/fit").iterdir()] == given[:1]
    assert len(list((tmp_path / given[0] / "train").glob("events.*"))) == 2
    (own,) = (tmp_path / "logs/own").iterdir()
    assert len(list((own / "test").glob("events.*"))) == 2
    assert len(list((tmp_path / "logs/steady-1").glob("events.*"))) == 2


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("logs/20261123-171430", "logs/*"), ("logs/20261123171430/a", "logs/*/a"),
        ("a/2026-11-23_17:14:30.123456", "a/*"), ("runs/Nov23_17-14-30_host", "runs/*_host"),
        ("r/1763917000.25-x", "r/*-x"), ("20261123-1714", "*"), ("logs/fold-1", "logs/fold-1"),
        ("logs/lr-0.001-batch-20480", "logs/lr-0.001-batch-20480"), ("logs/20261123", "logs/20261123"),
        ("logs/seed-123456789", "logs/seed-123456789"), ("logs/12345678901234567", "logs/12345678901234567"),
    ],
)  # fmt: skip
def test_what_counts_as_a_moment(path, form):
    assert MOMENT.sub("*", path) == form


def test_a_directory_in_the_project_is_found_where_the_project_is_now(tmp_path):
    def directory(root, moment):
        settings = ProbeSettings(trackers=str(tmp_path / "trackers"), project=root)
        context = SimpleNamespace(settings=settings, place="0af3-1", note=lambda *_: None, surprise=fail)
        return LogDirectories(EarlierChoices(context)).of(f"{root}/logs/{moment}")

    def fail(where, error):
        raise error

    assert directory("/Users/a/project", "20261123-171430") == "/Users/a/project/logs/20261123-171430"
    assert directory("/home/b/xyz", "20261124-030000") == "/home/b/xyz/logs/20261123-171430"

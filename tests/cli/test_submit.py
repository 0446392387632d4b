"""`stallguard fleet submit` refuses what no machine could train before it looks for a store."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from stallguard.cli.submit import command, sweep
from stallguard.errors import USAGE, StallguardError


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "a job needs a COMMAND"),
        (["--store", "file:///elsewhere", "train.py"], "store.url cannot be chosen"),
        (["--set", "policy.backoff=soon", "train.py"], "policy.backoff"),
        (["--again", "--name", "night"], "--again takes the name of a job, and --ray"),
    ],
)
def test_what_cannot_become_a_job_is_wrong_usage(tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StallguardError) as refused:
        CliRunner().invoke(command, words, catch_exceptions=False)

    assert says in " ".join(refused.value.lines())
    assert refused.value.code == USAGE


def test_a_file_of_a_sweep_that_is_no_text_says_so(tmp_path):
    file = tmp_path / "rates.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(StallguardError, match="cannot read") as refused:
        CliRunner().invoke(sweep, [str(file)], catch_exceptions=False)

    assert refused.value.why == "it is not UTF-8"

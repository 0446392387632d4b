"""The options of compare: which settings they make, and the one error for what cannot be compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallguard.cli import compare
from stallguard.cli.compare import Variant, variants, with_device
from stallguard.cli.verbs import cli
from stallguard.core.trials import Trial
from stallguard.errors import USAGE, StallguardError
from stallguard.host import system


def test_each_combination_of_the_values_is_one_setting() -> None:
    found = variants("cpu,gpu", "32, 64", ("A=1,2", "B=x"))
    assert len(found) == 8
    assert found[0] == Variant("cpu", 32, (("A", "1"), ("B", "x")))
    assert found[-1] == Variant("gpu", 64, (("A", "2"), ("B", "x")))


def test_a_variable_can_be_named_twice_and_an_empty_value_is_not_set() -> None:
    assert [one.env for one in variants("", "", ("A=", "A=-x=1"))] == [(("A", ""),), (("A", "-x=1"),)]


@pytest.mark.parametrize(
    ("device", "batch", "env", "what"),
    [
        ("cpu,tpu", "", (), "--device knows cpu and gpu, not 'tpu'"),
        ("cpu,", "", (), "--device has an empty value"),
        ("", "32,abc", (), "--batch takes numbers of rows, not 'abc'"),
        ("", "32,0", (), "--batch takes numbers of rows, not '0'"),
        ("", "", ("A",), "--env takes NAME=VALUE,VALUE, not 'A'"),
        ("", "", ("=1,2",), "--env takes NAME=VALUE,VALUE, not '=1,2'"),
        ("", "", ("A B=1,2",), "--env takes NAME=VALUE,VALUE"),
        ("", "", ("STALLGUARD_DEVICE=cpu,gpu",), "--env cannot set STALLGUARD_DEVICE"),
        ("", "", (), "there is nothing to compare"),
        ("cpu", "32,32", ("A=1",), "there is nothing to compare"),
        ("cpu,gpu", "1,2,3,4,5", ("A=1,2",), "these are 20 trials, more than 16"),
    ],
)
def test_what_cannot_be_compared_is_one_error(device: str, batch: str, env: tuple[str, ...], what: str) -> None:
    with pytest.raises(StallguardError) as raised:
        variants(device, batch, env)
    assert raised.value.what.startswith(what)
    assert raised.value.code == USAGE
    assert raised.value.cure


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that must not be started, in a place without settings."""
    monkeypatch.setenv("STALLGUARD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('started', 'w')\n")
    return tmp_path / "train.py"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--batch", "16,32"], "no setting passes the batch size to the script"),
        (["--env", "A=1,2", "--no-probe"], "the batches of this command cannot be counted"),
    ],
)
def test_a_setting_that_cannot_be_tried_is_refused_before_anything_starts(
    script: Path, options: list[str], what: str
) -> None:
    result = CliRunner().invoke(cli, ["tune", "compare", *options, "--python", sys.executable, str(script)])
    assert isinstance(result.exception, StallguardError)
    assert result.exception.what.startswith(what)
    assert not (script.parent / "started").exists()
    assert not (script.parent / "home" / "runs").exists()


@pytest.mark.parametrize("has_gpu", [False, True, None])
def test_the_gpu_is_refused_only_where_there_is_none(
    script: Path, monkeypatch: pytest.MonkeyPatch, has_gpu: bool | None
) -> None:
    monkeypatch.setattr(system, "has_gpu", lambda: has_gpu)
    words = (str(script),)
    flags = {"run.python": sys.executable}
    if has_gpu is False:
        with pytest.raises(StallguardError, match="this machine has no GPU"):
            compare.VariantTrials(words, flags, variants("cpu,gpu", "", ()), 50)
    else:
        compare.VariantTrials(words, flags, variants("cpu,gpu", "", ()), 50)


def test_a_trial_that_was_not_on_its_device_cannot_be_chosen() -> None:
    assert with_device(Trial(used_gpu=False), "gpu").trouble == "it used no GPU"
    assert "cannot be hidden" in with_device(Trial(used_gpu=True), "cpu").trouble
    for trial, device in ((Trial(used_gpu=True), "gpu"), (Trial(), "cpu"), (Trial(used_gpu=False), "")):
        assert with_device(trial, device) == trial
    assert with_device(Trial(), "gpu").note == "whether it used the GPU is not known"


def test_how_a_setting_is_applied(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLD", "1")
    monkeypatch.setattr(system, "has_gpu", lambda: True)
    words = (str(script), "--batch-size", "16")
    flags = {"policy.batch_flag": "--batch-size", "run.python": sys.executable}
    comparison = compare.VariantTrials(words, flags, variants("gpu,cpu", "16,64", ("OLD=1,", "NEW=,a b")), 50)

    assert comparison.how_to_apply(0) == ["nothing has to change"]
    on_cpu, run, rate = comparison.how_to_apply(15)
    assert "set_visible_devices" in on_cpu
    assert run.startswith("NEW='a b' env -u OLD stallguard run --batch-flag --batch-size ")
    assert run.endswith(f" --batch 64 -- {script} --batch-size 16")
    assert "learning rate" in rate

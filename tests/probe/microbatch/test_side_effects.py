"""What a step changes besides gradients is found by two rows, and put back."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

CHILD = Path(__file__).parent / "children" / "side_effects.py"
SAID = {
    "nothing": "", "dropout that is put back": "", "an attribute": "Model.calls", "a list of the class": "Model.shared",
    "a global list": "__main__.LOSSES", "a nested list": "__main__.SUMS", "a global array": "__main__.MEAN",
    "an object": "Model.meter", "a tensor in place": "Model.last", "a buffer": "norm.running_mean",
    "rows in place": "its batch", "a row taken out": "its batch", "python": "(python)", "numpy": "(numpy)",
    "its own generator": "__main__.GENERATOR", "dropout": "(torch)",
}  # fmt: skip


@pytest.fixture(scope="module")
def found(other_python):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([other_python("torch"), CHILD], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("step", "said"), SAID.items())
def test_what_a_step_changes_is_named_and_put_back(found, step, said):
    text, kept = found[step]
    assert said in text
    assert bool(said) == bool(text)
    assert kept

"""numpy's generators: to the script the same classes."""

from __future__ import annotations

import sys

import pytest

from tests.probe.attempts import LOOK, Attempts

LOOK_AT_NUMPY = """
import numpy as np
rng = np.random.default_rng()
again = pickle.loads(pickle.dumps(rng))
facts["numpy"] = [
    type(np.random.default_rng).__name__, np.random.default_rng.__doc__, str(type(rng)),
    isinstance(rng, np.random.Generator),
    rng.random() == again.random(), np.random.SeedSequence.__doc__,
]
"""


@pytest.mark.parametrize("environment", ["here", "keras2"])
def test_numpy_looks_the_same_too(receiver, tmp_path, other_python, environment):
    interpreter = sys.executable if environment == "here" else other_python(environment)
    code = LOOK + LOOK_AT_NUMPY + "print(json.dumps(facts['numpy']))"
    attempts = Attempts(receiver, tmp_path, code, interpreter)
    assert attempts.draws() == attempts.draws("", STALLGUARD_OWNER="1")

"""What an error of the script prints is the same as without stallguard, whoever prints it."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from .runs import SCRIPTS, stallguard
from .test_pythons import python  # noqa: F401  a fixture: each Python from 3.9 on

pytestmark = pytest.mark.live

# What differs between two runs without stallguard too: addresses, numbers of traced functions, generated files, the
# lines that TensorFlow logs with the time, and its advice on retracing, which some runs print and others do not.
CHANGING = re.compile(r"0x[0-9a-f]+|(?<=__inference_)\w+|(?<=__autograph_generated_file)\w+")
LOGGED = re.compile(
    r"(?:[IWE]\d{4} \d\d|WARNING: All log|WARNING:tensorflow:\d+ out of the last|To enable the following"
    r"|stallguard: ).*\n"
)
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def difference(
    home: Path, *command: str, backend: str = "tensorflow", count: int, options: tuple[str, ...] = ()
) -> str:
    """Return how the stderr of a guarded command differs from that of the plain one, which has `count` tracebacks.

    `options`: those of `stallguard run`.
    """
    # AutoGraph leaves files behind.  Not in `home`: workers of torch wait for ever if the path of a socket is too long.
    with tempfile.TemporaryDirectory() as temporary:
        environment = {**QUIET, "KERAS_BACKEND": backend, "TMPDIR": temporary}
        plain = subprocess.run(
            command, env={**os.environ, **environment}, cwd=home, capture_output=True, check=False, timeout=400
        )
        guarded = stallguard(home, "run", *options, *command, env=environment, cwd=home)
    texts = [CHANGING.sub("", LOGGED.sub("", text)) for text in (plain.stderr.decode(), guarded.err)]
    assert texts[0].count("Traceback (most recent call last)") >= count, texts[0]
    assert guarded.code == plain.returncode == 1
    return "\n".join(difflib.unified_diff(*(text.splitlines() for text in texts), "plain", "guarded", n=1))


@pytest.mark.parametrize("words", [[], ["hook"]], ids=["", "own hook"])
def test_of_plain_python(words: list[str], python: str, tmp_path: Path) -> None:  # noqa: F811
    assert difference(tmp_path, python, str(SCRIPTS / "errors_plain.py"), *words, count=12) == ""


@pytest.mark.parametrize(
    "command", [["-c", "import random; random.seed([])"], ["-m", "errors_plain"]], ids=lambda command: command[0]
)
def test_of_other_entries(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS))
    assert difference(tmp_path, sys.executable, *command, count=1) == ""


def test_a_syntax_error(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text("import random\ndef f(:\n")
    assert difference(tmp_path, sys.executable, str(script), count=0) == ""


@pytest.mark.tf
@pytest.mark.parametrize(
    ("script", "options"),
    [
        # Without a save between: on Keras 2 and JAX, below.
        ("errors_keras.py", ("--checkpoint-every", "0", "--set", "checkpoint.cost=100%")),
        ("errors_tf.py", ()),
    ],
    ids=["keras, saved at each batch", "tf"],
)
def test_of_tensorflow(script: str, options: tuple[str, ...], tmp_path: Path) -> None:
    assert difference(tmp_path, sys.executable, str(SCRIPTS / script), count=6, options=options) == ""


@pytest.mark.parametrize(
    ("environment", "script", "count"),
    [
        ("keras2", "errors_keras.py", 9), ("jax", "errors_keras.py", 9), ("torch", "errors_torch.py", 8),
    ],
)  # fmt: skip
def test_of_other_libraries(
    environment: str, script: str, count: int, other_python: Callable[[str], str], tmp_path: Path
) -> None:
    backend = environment if environment in ("torch", "jax") else "tensorflow"
    found = other_python(environment)
    assert difference(tmp_path, found, str(SCRIPTS / script), backend=backend, count=count) == ""

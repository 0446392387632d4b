"""Loops that hand over their objects to `stallguard.track` end after kills as without them, to the bit."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import mlx_kernels
from tests.probe.receiver import Receiver

from .runs import SCRIPTS, Guarded, stallguard

ROOT = str(Path(__file__).parents[2])
OPTIONS = ("--checkpoint-every", "0s", "--set", "checkpoint.cost=1", "--set", "policy.backoff=0s",
           "--set", "policy.no_progress_limit=9")  # fmt: skip


@pytest.fixture
def short() -> Iterator[str]:
    """Yield a directory whose path is short: torch's workers pass tensors by sockets in TMPDIR.

    A socket's path has at most 107 characters: beyond that torch drops the batch, and the loop waits without end.
    """
    with tempfile.TemporaryDirectory(prefix="t-") as path:
        yield mlx_kernels.share(Path(path))


@pytest.mark.parametrize(
    ("library", "kills", "words"),
    [
        ("torch", "step:7,validation:0", ()),
        ("torch", "save:9,step:9", ("workers=2", "epoch=1")),
        ("torch", "step:4,validation:1", ("scaled=1", "stop=9")),
        ("mlx", "step:7,validation:0,save:5", ("compiled=1",)),
        ("mlx", "step:20,save:3", ()),
        ("jax", "step:7,validation:0,save:5", ("of=optax", "donated=1")),
        ("jax", "step:7,validation:0", ("of=linen",)),
        ("jax", "step:20,save:3", ("of=equinox",)),
        ("jax", "step:7,validation:0", ("of=nnx",)),
    ],
)
def test_a_killed_loop_ends_as_the_undisturbed_one(
    other_python: Callable[[str], str], tmp_path: Path, short: str, library: str, kills: str, words: tuple[str, ...]
) -> None:
    python, script = other_python(library), str(SCRIPTS / f"tracked_{library}.py")
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))}
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(tmp_path / "compiled")  # torch makes it, unused
    environment["TMPDIR"] = short  # worker processes leave directories there when their parent is killed
    for name in ("plain", "killed"):
        (tmp_path / name).mkdir()
    whole = subprocess.run(
        [python, script, str(tmp_path / "plain"), "none:0", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    run = stallguard(tmp_path, "run", *OPTIONS, "--", python, script, str(tmp_path / "killed"), kills, *words,
                     env=environment)  # fmt: skip
    assert run.code == 0, run.err
    assert len(list((tmp_path / "killed").iterdir())) == 1 + len(kills.split(","))
    assert run.out.decode().splitlines()[-1] == whole.stdout.splitlines()[-1]
    assert "goes on" in run.err
    assert "another order" not in run.err


def jax_run(other_python: Callable[[str], str], place: Path, script: str, *words: str) -> Guarded:
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))}
    words = ("run", *OPTIONS, "--", other_python("jax"), script, *words)
    return stallguard(place, *words, env=environment, cwd=place)


def test_a_state_of_jax_with_another_structure_starts_over(other_python: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "killed").mkdir()
    script = str(SCRIPTS / "tracked_jax.py")
    run = jax_run(other_python, tmp_path, script, str(tmp_path / "killed"), "step:7", "of=optax", "other=1")
    assert run.code == 0, run.err
    assert "starts over: the script hands over other objects" in run.err
    assert "loop goes on" not in run.err


def test_arrays_of_jax_that_the_loop_does_not_replace_are_no_checkpoint(
    other_python: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "killed").mkdir()
    script = str(SCRIPTS / "tracked_jax.py")
    run = jax_run(other_python, tmp_path, script, str(tmp_path / "killed"), "none:0", "of=optax", "aside=1")
    assert run.code == 0, run.err
    assert "no checkpoint can be written (ValueError: no array that the script handed over was replaced" in run.err
    assert not list(tmp_path.glob("runs/*/checkpoints/**/g[0-9]*"))


LOOP = """
import hashlib, os, sys
import jax, jax.numpy as jnp, numpy as np, optax, stallguard
TX = optax.adam(1e-2)
DATA = np.random.default_rng(3).normal(size=(20, 8, 4)).astype("float32")
@jax.jit
def step(params, moments, key, x):
    key, now = jax.random.split(key)
    def loss_of(params):
        hidden = x @ params["in"]
        return jnp.mean(((hidden * jax.random.bernoulli(now, 0.7, hidden.shape)) @ params["out"] - x[:, :1]) ** 2)
    updates, moments = TX.update(jax.grad(loss_of)(params), moments, params)
    return optax.apply_updates(params, updates), moments, key
weights = {"in": jnp.ones((4, 6)) / 3, "out": jnp.ones((6, 1)) / 2}
moments, key = TX.init(weights), jax.random.key(5)
"""
PLAIN = """
for epoch in range(2):
    for x in DATA:
        weights, moments, key = step(weights, moments, key, x)
"""
BODY = """
        if (epoch, number) == (1, 5) and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), 9)
"""
END = """
leaves = [np.asarray(one).tobytes() for one in jax.tree.leaves((weights, moments))]
print(hashlib.sha256(b"".join(leaves)).hexdigest())
"""


def test_a_loop_of_jax_that_gets_the_lines_that_it_is_told_is_resumed(
    other_python: Callable[[str], str], tmp_path: Path
) -> None:
    python = other_python("jax")
    (tmp_path / "train.py").write_text(LOOP + PLAIN + END)
    with Receiver() as receiver:
        told = receiver.run([python, "train.py"], 300, cwd=tmp_path)
    assert told.code == 0, told.err
    [lines] = [note["facts"]["lines"] for note in told.notes if note["kind"] == "loop"]
    words = re.fullmatch(r"(for .*:) \| (for .*:) \(before them (state = {.*}); the loop .*\)", lines)
    assert words is not None, lines
    outer, inner, before = words.groups()
    names = re.findall(r'"(\w+)": ', before)
    training = "weights, moments, key = step(weights, moments, key, batch)"
    for name in names:
        training = re.sub(rf"\b{name}\b", f'state["{name}"]', training)
    inner = inner.replace("step, batch", "number, batch")  # the script has a function of that name
    loop = f"{before}\n{outer.replace('EPOCHS', '2')}\n    {inner}{BODY}        {training}\n"
    after = "".join(f'{name} = state["{name}"]\n' for name in names)
    (tmp_path / "train.py").write_text(LOOP + loop + after + END)
    run = jax_run(other_python, tmp_path, "train.py")
    assert run.code == 0, run.err
    assert (tmp_path / "killed").exists()
    assert "goes on in epoch 2, after its batch 5" in run.err
    assert run.out.decode().splitlines()[-1] == told.out.splitlines()[-1]

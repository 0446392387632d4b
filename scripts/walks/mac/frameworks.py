"""The loops of MLX and PyTorch: a script's own loop, with stallguard.beat() after each step and without it.

PyTorch's steps are counted without it too; MLX's are not, and the run has to say so.  They are made with the first
Python here that has the library.  Must not install anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mac.machine import pythons
from mac.scene import Scene
from mac.table import Row, judged, unknown
from mac.verdicts_kernel import batches

STEPS = 50
ASK = 60.0  # seconds for a Python to say whether it has a library: importing it can take long
RUN = 180.0  # seconds for the loop
UNCOUNTED = "no batch was counted"  # a part of the sentence of training.uncounted (report/narrative.py)


class Loop(NamedTuple):
    """`module`: what must be there; `device`: what the loop prints if it runs on the GPU of a Mac.

    `counts`: whether its steps are counted; if not, the run must say so.
    """

    name: str
    module: str
    device: str
    source: str
    counts: bool = True


LOOPS = (
    Loop("MLX", "mlx.core", "gpu", """
import mlx.core as mx
import stallguard
a = mx.random.normal((512, 512))
for _ in range({steps}):
    a = mx.tanh(a @ a / 512 ** 0.5)
    mx.eval(a)
    stallguard.beat()
print("device", "gpu" if "gpu" in str(mx.default_device()) else "cpu")
"""),
    Loop("PyTorch", "torch", "mps", """
import torch
import stallguard
device = "mps" if torch.backends.mps.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range({steps}):
    loss = model(torch.randn(64, 256, device=device)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    loss.item()
    stallguard.beat()
print("device", device)
"""),
    Loop("PyTorch, unchanged,", "torch", "mps", """
import torch
from torch.utils.data import DataLoader, TensorDataset
device = "mps" if torch.backends.mps.is_available() else "cpu"
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), 0.001)
data = TensorDataset(torch.randn(64 * {steps}, 256), torch.randn(64 * {steps}, 1))
for x, y in DataLoader(data, 64, shuffle=True):
    loss = (model(x.to(device)) - y.to(device)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    loss.item()
print("device", device)
"""),
    # Its run says after 45 seconds that the steps are not counted (core/advisories.py).
    Loop("MLX, unchanged,", "mlx.core", "gpu", """
import time
import mlx.core as mx
a, end = mx.random.normal((512, 512)), time.monotonic() + 60
while time.monotonic() < end:
    a = mx.tanh(a @ a / 512 ** 0.5)
    mx.eval(a)
print("device", "gpu" if "gpu" in str(mx.default_device()) else "cpu")
""", counts=False),
)  # fmt: skip


def checks(scene: Scene) -> Iterator[Row]:
    """Run the loop of each library that is installed."""
    scene = scene.keeping(scene.kept, scene.home)
    scene.env["TORCHINDUCTOR_CACHE_DIR"] = str(scene.home / "inductor")  # else torch leaves one in TMPDIR
    for loop in LOOPS:
        python = _having(loop.module, candidates(Path.home(), os.environ))
        if python is None:
            yield unknown(f"{loop.name} loop", f"no Python here has {loop.module}",
                          expected="each step is counted")  # fmt: skip
            continue
        script = scene.home / f"{re.sub('[^a-z]', '', loop.name.lower())}.py"
        script.write_text(loop.source.format(steps=STEPS))
        words = ("run", "--python", python, "--set", "notify.desktop=off", str(script))
        said = scene.stallguard(*words, seconds=RUN)
        yield verdict(loop, said.code, said.text, sys.platform)


def verdict(loop: Loop, code: int, text: str, platform: str) -> Row:
    """Whether each step was counted, and on which device it was computed."""
    check, device = f"{loop.name} loop", re.search(r"^device (\w+)", text, re.MULTILINE)
    where = device[1] if device else "no device"
    counted = batches(text)
    if not loop.counts:
        return _uncounted(loop, code, text, f"exit code {code}, {counted or 'no'} steps counted on {where}")
    if platform == "darwin" and code == 0 and where != loop.device:
        return unknown(check, "it does not use the GPU here", f"{counted} of {STEPS} steps on {where}")
    return judged(check, code == 0 and counted == STEPS, f"exit code {code}, {counted} of {STEPS} steps on {where}",
                  "each step is counted", f"steps are lost: {text.strip()[-200:]}")  # fmt: skip


def _uncounted(loop: Loop, code: int, text: str, figure: str) -> Row:
    """Whether a run says that the steps of its loop are not counted."""
    check, expected = f"{loop.name} loop", "the run says that its steps are not counted"
    if code == 0 and UNCOUNTED in text:
        return unknown(check, "a known limit, which the run says: add stallguard.beat() after each step", figure,
                       expected)  # fmt: skip
    return judged(check, holds=False, figure=figure, means=expected,
                  otherwise=f"nothing is counted, and nothing is said of it: {text.strip()[-200:]}")  # fmt: skip


def candidates(home: Path, env: Mapping[str, str]) -> list[str]:
    """Return the interpreters that can have a library: the active environment's first."""
    active = [str(Path(env[name]) / "bin/python") for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if env.get(name)]
    found = [*active, *pythons(home).values()]
    return [python for python in dict.fromkeys(found) if Path(python).exists()]


def _having(module: str, found: list[str]) -> str | None:
    """Return the first interpreter that can import `module`."""
    for python in found:
        ask = (python, "-c", f"import {module}")
        try:
            if subprocess.run(ask, capture_output=True, timeout=ASK, check=False).returncode == 0:
                return python
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None

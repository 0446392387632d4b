"""A training of MLX that saves its weights, is killed once, and never reads what it saved, as in unsloth-zoo#751."""

import os
import signal
import time
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn
from mlx.utils import tree_flatten

model, optimizer = nn.Linear(8, 1), optim.Adam(0.01)
gradients = nn.value_and_grad(model, lambda model, x, y: ((model(x) - y) ** 2).mean())
x, y = mx.random.normal((16, 8)), mx.random.normal((16, 1))
for step in range(1, 101):
    loss, found = gradients(model, x, y)
    optimizer.update(model, found)
    mx.eval(model.parameters(), optimizer.state, loss)
    if step % 10 == 0:
        folder = Path(f"checkpoint-{step}")
        folder.mkdir(exist_ok=True)
        mx.save_safetensors(str(folder / "adapters.safetensors"), dict(tree_flatten(model.trainable_parameters())))
    if step == 45 and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.03)

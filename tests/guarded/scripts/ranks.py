"""A training of MLX in two processes, with the mean of their gradients in each step; the environment has the rank."""

import time

import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn

group = mx.distributed.init(strict=True, backend="ring")
mx.random.seed(0)
model, optimizer = nn.Linear(8, 1), optim.SGD(0.01)
gradients = nn.value_and_grad(model, lambda model, x, y: ((model(x) - y) ** 2).mean())
x, y = mx.random.normal((16, 8)), mx.random.normal((16, 1))
for step in range(100_000):
    loss, found = gradients(model, x, y)
    optimizer.update(model, nn.average_gradients(found, group=group))
    mx.eval(model.parameters(), optimizer.state, loss)
    print(step, flush=True)
    time.sleep(0.05)

"""A tracked loop that leaks: tracked_leak.py torch|mlx BYTES PAUSE; it prints its steps, and what it came to."""

import hashlib
import sys
import time

import limited

import stallguard

library, size, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
if library == "torch":
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)

    def train(at):
        optimizer.zero_grad()
        model(torch.randn(4, 8) + at % 7).square().mean().backward()
        optimizer.step()

    def state():
        return [one.detach().numpy().tobytes() for one in model.parameters()]

else:
    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx.utils import tree_flatten

    mx.random.seed(5)
    model, optimizer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1)), optimizers.Adam(0.01)
    graded = nn.value_and_grad(model, lambda model, x: model(x).square().mean())

    def train(at):
        _, gradients = graded(model, mx.random.normal((4, 8)) + at % 7)
        optimizer.update(model, gradients)
        mx.eval(model.parameters(), optimizer.state)

    def state():
        return [bytes(memoryview(one)) for _, one in sorted(tree_flatten(model.parameters()))]


leaked = []
for step, at in stallguard.track(model, optimizer, list(range(350))):
    if not leaked and size:
        limited.leave(200_000_000)
    leaked.append(b"x" * size)
    train(at)
    print(step, flush=True)
    time.sleep(pause)
print(hashlib.sha256(b"".join(state())).hexdigest())

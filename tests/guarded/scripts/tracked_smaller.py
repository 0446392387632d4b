"""A loop of torch, accelerate or MLX whose device has no memory for more than ROWS rows from the sixth batch on.

tracked_smaller.py LIBRARY ROWS
"""

import random
import sys

import stallguard

library, most = sys.argv[1], int(sys.argv[2])
random.seed(1)
log = {"steps": 0, "last": None}


def compute(rows: int, *place: int) -> None:
    """Fail for more rows than there is memory for."""
    if log["steps"] >= 5 and rows > most:
        raise Short
    log["steps"] += log["last"] != place
    log["last"] = place


if library in ("torch", "accelerate"):
    import torch

    backward = torch.Tensor.backward

    Short = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
    torch.manual_seed(2)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, 30)
    data = torch.utils.data.TensorDataset(torch.randn(60, 6), torch.randn(60, 1))
    loader = torch.utils.data.DataLoader(data, 8, shuffle=True)
    if library == "accelerate":
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
        backward = accelerator.backward
    for epoch, batches in stallguard.track(model, optimizer, scheduler, log, loader, epochs=3, loss="mean"):
        for step, (x, y) in batches:
            compute(len(x), epoch, step)
            optimizer.zero_grad()
            backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            scheduler.step()
    found = [one for value in model.state_dict().values() for one in value.flatten().tolist()]
    steps = int(optimizer.state_dict()["state"][0]["step"])
else:
    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx.utils import tree_flatten

    text = (
        "Attempting to allocate 21474836480 bytes which is greater than the maximum allowed buffer size of 9534832640"
    )
    Short = RuntimeError(f"[metal::malloc] {text} bytes.")
    mx.random.seed(2)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = optimizers.Adam(optimizers.cosine_decay(0.01, 30))
    gradient = nn.value_and_grad(model, lambda model, x, y: nn.losses.mse_loss(model(x), y))
    X, Y = mx.random.normal((60, 6)), mx.random.normal((60, 1))

    def drawn():
        """Yield the batches of an epoch."""
        order = random.sample(range(60), 60)
        for begin in range(0, 60, 8):
            rows = mx.array(order[begin : begin + 8])
            yield X[rows], Y[rows]

    for epoch, batches in stallguard.track(model, optimizer, log, drawn, epochs=3, loss="mean"):
        for step, (x, y) in batches:
            compute(len(x), epoch, step)
            loss, slopes = gradient(model, x, y)
            optimizer.update(model, slopes)
            mx.eval(loss, model.parameters(), optimizer.state)
    found = [one for _, value in sorted(tree_flatten(model.parameters())) for one in value.flatten().tolist()]
    steps = optimizer.step.item()
print([steps, log["steps"], *found])

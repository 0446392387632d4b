"""A training of torch in two processes, with the mean of their gradients in each step; the environment has the rank.

The argument says how a rank waits for the other: all_reduce (in torch), wait, polls (without a pause), asks (with one).
"""

import sys
import time

import torch
from torch import distributed

kind = sys.argv[1]
torch.set_num_threads(1)
distributed.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1, bias=False)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x, y = torch.randn(16, 8), torch.randn(16, 1)
for step in range(100_000):
    optimizer.zero_grad()
    ((model(x) - y) ** 2).mean().backward()
    if kind == "all_reduce":
        distributed.all_reduce(model.weight.grad)
    else:
        work = distributed.all_reduce(model.weight.grad, async_op=True)
        while kind != "wait" and not work.is_completed():
            time.sleep(0.005) if kind == "asks" else None
        work.wait()
    model.weight.grad /= 2
    optimizer.step()
    print(step, flush=True)
    time.sleep(0.05)

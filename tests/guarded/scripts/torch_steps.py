"""A plain loop of torch, one epoch, that waits once for a lock that is never released: torch_steps.py STEP."""

import sys
import threading
import time
from pathlib import Path

import torch

torch.set_num_threads(1)
torch.manual_seed(5)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(int(sys.argv[1]) + 20):
    if step == int(sys.argv[1]) and not Path("stalled").exists():
        Path("stalled").touch()
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.05)  # there must be time to learn the pace of the steps

"""Errors in a loop of PyTorch: of a data set, in a worker, of a gradient, in a thread, where none can be raised."""

import sys
import threading
import traceback

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Fails at its tenth row."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        if index == 9:
            raise KeyError("row")
        return torch.zeros(3)


class Lost:
    """Fails where Python cannot raise it."""

    def __del__(self):
        train()


model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def train(workers=0):
    for rows in DataLoader(Rows(), batch_size=2, num_workers=workers):
        loss = model(rows).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


for function in (
    train,
    lambda: train(1),
    lambda: torch.zeros(3).backward(),
    lambda: model(torch.zeros(3)).sum().backward(gradient="x"),
    lambda: optimizer.step(closure=lambda: 1 / 0),
):
    print("==", function.__code__.co_firstlineno, file=sys.stderr)
    try:
        function()
    except Exception:
        traceback.print_exc()
thread = threading.Thread(target=train)
thread.start()
thread.join()
Lost()
found = []
for _ in range(2):
    try:
        train()
    except KeyError as error:
        found.append(error)
raise ExceptionGroup("both", found)

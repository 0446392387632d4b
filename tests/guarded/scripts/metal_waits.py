"""A tracked loop of torch in which a call that waits for a Mac's GPU waits for ever, once: metal_waits.py CALL MEMORY.

There is no such GPU here: what torch's own functions call in C is a semaphore that is never raised.  MEMORY is a file
that remembers that it has waited: a second start goes through, and the lines show with which step each start began.
"""

import ctypes
import functools
import sys
import time
import types
from pathlib import Path

import torch

import stallguard

call, memory = sys.argv[1], Path(sys.argv[2])
AT, STEPS = 45, 60
libc, semaphore = ctypes.CDLL(None), ctypes.create_string_buffer(64)
libc.sem_init(semaphore, 0, 0)
never = functools.partial(libc.sem_wait, semaphore)
torch._C._mps_acquireEvent = lambda timing: 1
torch._C._mps_releaseEvent = lambda event: None
torch.set_num_threads(1)
torch.manual_seed(5)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
data = torch.utils.data.DataLoader(torch.randn(4 * STEPS, 8), batch_size=4, shuffle=True)
event, first = torch.mps.event.Event(), None
for _, batches in stallguard.track(model, optimizer, data, epochs=1):
    for step, x in batches:
        if first is None:
            first = step
            print("first", step, flush=True)
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        if step == AT and not memory.exists():
            memory.touch()
            torch._C._mps_deviceSynchronize = torch._C._mps_synchronizeEvent = never
            loss = types.SimpleNamespace(item=never, cpu=never)
        time.sleep(0.05)  # there must be time to learn the pace of the steps
        if not isinstance(loss, torch.Tensor):
            if call == "synchronize":
                torch.mps.synchronize()  # named: synchronize
            elif call == "event":
                event.synchronize()  # named: event
            elif call == "item":
                loss.item()  # named: item
            else:
                loss.cpu()  # named: cpu
print("trained", float(model.weight.detach().sum()))
del event

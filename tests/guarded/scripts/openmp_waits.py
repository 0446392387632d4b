"""A tracked loop of torch that waits for ever in OpenMP, once, with two runtimes loaded: openmp_waits.py FOLDER.

The second is a copy of torch's own under LLVM's name.  It waits in its own code, for a lock that it has: a barrier of
two runtimes is not known to hang here.
"""

import ctypes
import shutil
import sys
import time
from pathlib import Path

import torch

import stallguard

folder = Path(sys.argv[1])
second, memory = folder / "env" / "lib" / "libomp.so", folder / "waited"
if not second.exists():
    second.parent.mkdir(parents=True)
    shutil.copy(next(Path(torch.__file__).parent.glob("lib/libgomp*")), second)
runtime, lock = ctypes.CDLL(str(second)), ctypes.create_string_buffer(64)
runtime.omp_init_lock(lock)
torch.set_num_threads(1)
torch.manual_seed(5)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters(), 0.01)
first = None
for step, x in stallguard.track(model, optimizer, [torch.full((4, 8), float(at)) for at in range(60)]):
    if first is None:
        first = step
        print("first", step, flush=True)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    if step == 45 and not memory.exists():
        memory.touch()
        runtime.omp_set_lock(lock)
        runtime.omp_set_lock(lock)
    time.sleep(0.05)  # there must be time to learn the pace of the steps
print("trained")

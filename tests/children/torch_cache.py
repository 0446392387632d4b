"""A training of torch, or of Keras on it, gets the order to empty caches in its fifth batch; Metal is a stand-in."""

import sys
import threading

import torch

sizes, emptied, batches = [72 * 10**9], [], [0]
ORDER, COMMAND = 3, 39  # stallguard/probe/wire.py


def empty_cache():
    """Give back what no tensor uses."""
    sizes[0] = 7 * 10**9
    emptied.append((batches[0], threading.current_thread() is threading.main_thread()))


def batch_ends():
    """Count a batch; order it before the fifth one ends."""
    batches[0] += 1
    if batches[0] == 5:
        sys.modules["_stallguard_probe"].probe.beats.slots[COMMAND] = ORDER


torch.mps._default_mps_generator = object()  # as if Metal were in use
torch.mps.driver_allocated_memory = lambda: sizes[0]
torch.mps.current_allocated_memory = lambda: 7 * 10**9
torch.mps.empty_cache = empty_cache
if sys.argv[1] == "loop":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(9):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        batch_ends()
        optimizer.step()
else:
    import time

    import keras
    import numpy as np

    class Watch(keras.callbacks.Callback):
        """Ends batches."""

        def on_train_batch_end(self, batch, logs=None):
            """Count, with time for the order to be seen."""
            batch_ends()
            time.sleep(0.3 if batches[0] == 5 else 0)

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((72, 4)), np.zeros((72, 1)), batch_size=8, verbose=0, callbacks=[Watch()])
assert sys.modules["_stallguard_probe"].probe.beats.slots[COMMAND] == 0
[(at, is_main)] = emptied
assert is_main
print(f"emptied after batch {at}, once, by the thread that trains")

"""A table larger than the memory that the group of processes has: its rows are read from the disk again and again."""

import pathlib

import keras
import numpy as np

ROWS, WIDTH = 131072, 2048  # 1 GiB
if not pathlib.Path("table.npy").exists():
    table = np.lib.format.open_memmap("table.npy", "w+", np.float32, (ROWS, WIDTH))
    for start in range(0, ROWS, 4096):
        table[start : start + 4096] = np.random.default_rng(start).random((4096, WIDTH), dtype=np.float32)
    table.flush()
table = np.load("table.npy", mmap_mode="r")
model = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
chance = np.random.default_rng(0)
for batch in range(1000):
    rows = table[chance.integers(0, ROWS, 16)]  # slow
    loss = model.train_on_batch(rows, rows[:, :1])
    if batch % 50 == 0:
        print(batch, loss, flush=True)

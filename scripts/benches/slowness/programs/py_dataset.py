"""A keras.utils.PyDataset whose batches are parsed from text, one after the other."""

import math

import keras
import numpy as np


class Rows(keras.utils.PyDataset):
    """Parses each batch from lines of comma-separated values."""

    def __init__(self, lines, size):
        super().__init__()
        self.lines, self.size = lines, size

    def __len__(self):
        return math.ceil(len(self.lines) / self.size)

    def __getitem__(self, number):
        lines = self.lines[number * self.size : (number + 1) * self.size]
        rows = np.array([[float(cell) for cell in line.split(",")] for line in lines], np.float32)  # slow
        return rows[:, 1:], rows[:, :1]


chance = np.random.default_rng(0)
table = chance.random((2000, 2001))
lines = [",".join(f"{cell:.6f}" for cell in row) for row in table]
model = keras.Sequential([keras.layers.Input((2000,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(1e-4), "mse")
model.fit(Rows(lines, 50), epochs=40, verbose=2)

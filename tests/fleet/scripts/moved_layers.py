"""A module of the project, beside its script."""

import keras


def layers():
    return [
        keras.layers.Input((3,)), keras.layers.Dense(8), keras.layers.Dropout(0.2), keras.layers.Dense(1)
    ]  # fmt: skip

"""Trains a convolution with batches of 512 under the probe, and prints its peak memory: the child of `microbatch`.

    microbatch_child.py WEIGHTS      the file that the trained weights are kept in

The probe's settings say how many slices each batch is trained in.
The peak is that of the GPU's memory where one trains.
"""

import json
import resource
import sys
import time

import keras
import numpy as np

BATCH, SIDE, EPOCHS = 512, 96, 3
UNIT = 1 if sys.platform == "darwin" else 1024  # bytes; of ru_maxrss


def peak():
    return gpu_peak() or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def gpu_peak():
    """Return the peak of what was in use of the GPU's memory, in bytes; None if no GPU trains."""
    if sys.argv[2] == "cpu":
        return None
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    if keras.backend.backend() == "jax":
        import jax

        return (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    import tensorflow as tf

    found = tf.config.list_physical_devices("GPU")
    return tf.config.experimental.get_memory_info("GPU:0")["peak"] if found else None


class Times(keras.callbacks.Callback):
    """Remembers when epochs, of one batch each, ended."""

    def __init__(self):
        super().__init__()
        self.ends = []

    def on_epoch_end(self, epoch, logs=None):
        self.ends.append(time.monotonic())


def main(weights):
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((SIDE, SIDE, 3)), layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(),
        layers.Conv2D(64, 3, activation="relu"), layers.GlobalAveragePooling2D(), layers.Dense(10),
    ])  # fmt: skip
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.RandomState(0)
    images, labels = random.rand(BATCH, SIDE, SIDE, 3).astype("float32"), random.randint(0, 10, BATCH)
    times, before = Times(), peak()
    model.fit(images, labels, BATCH, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[times])
    np.save(weights, np.concatenate([np.ravel(value) for value in model.get_weights()]))
    seconds = min(b - a for a, b in zip(times.ends, times.ends[1:]))
    print(json.dumps({"before": before, "peak": peak(), "seconds": seconds, "gpu": gpu_peak() is not None}))


if __name__ == "__main__":
    main(sys.argv[1])

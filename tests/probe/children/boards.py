"""A fit and a loop that write for TensorBoard into directories named by the time, and crash once."""

import datetime
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

now = datetime.datetime.now()  # noqa: DTZ005 - as scripts do
board, own, steady = (f"logs/fit/{now:%Y%m%d-%H%M%S}", f"logs/own/{now:%Y-%m-%d_%H:%M:%S.%f}/test", "logs/steady-1")
print("given", board, flush=True)
writers = [tf.summary.create_file_writer(path) for path in (own, steady)]


class Crash(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        for writer in writers:
            with writer.as_default():
                tf.summary.scalar("epoch", epoch, step=epoch)
            writer.flush()
        if epoch == 1 and not Path("crashed").exists():
            Path("crashed").touch()
            os.kill(os.getpid(), signal.SIGSEGV)


model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.zeros((8, 2), "float32")
model.fit(
    x, x[:, :1], batch_size=4, epochs=3, verbose=0, callbacks=[keras.callbacks.TensorBoard(log_dir=board), Crash()]
)

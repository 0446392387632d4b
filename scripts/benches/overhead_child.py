"""What the probe's hooks cost a real `fit`: main-thread CPU a step, hooks in against hooks out, in one process.

Run by `scripts/bench overhead` inside a training environment, under the probe.  Fits of equal work alternate
(out, in, out), and the median of the paired differences is taken: the machine's own swings cancel.  The poll
and sender threads run all the time; `process` shows what they and everything else add to the whole process
when compared with a run of `--bare` (no probe at all).  Prints one JSON object.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

STEPS, BATCH = 300, 8


def model_and_data(work):
    """Return a small compiled model and a cached dataset of STEPS batches; `work` grows the step."""
    keras = tf.keras
    x = np.random.default_rng(0).random((STEPS * BATCH, 16)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(BATCH).cache().prefetch(8)
    layers = [keras.layers.Dense(work, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((16,)), *layers])
    model.compile("sgd", "mse", metrics=["mae"])
    return model, data


def keras_version():
    """Return the version of Keras that tf.keras is: inside TensorFlow 2.15 it does not say so itself."""
    import importlib.metadata

    return getattr(tf.keras, "__version__", None) or importlib.metadata.version("keras")


def measure(model, data):
    """Fit once; return seconds a step: wall, main thread's CPU, process CPU."""
    began = time.perf_counter(), time.thread_time(), time.process_time()
    model.fit(data, epochs=1, verbose=0)
    ended = time.perf_counter(), time.thread_time(), time.process_time()
    return [(after - before) / STEPS for before, after in zip(began, ended)]


def pairs(patches, model, data, count):
    """Return for each of `count` rounds the difference in - mean(out before, out after), and all the outs."""
    differences, outs = [], []
    for _ in range(count):
        patches.take_out()
        first = measure(model, data)
        patches.put_back()
        inside = measure(model, data)
        patches.take_out()
        last = measure(model, data)
        differences.append([mid - (a + b) / 2 for a, mid, b in zip(first, inside, last)])
        outs += [first, last]
    patches.put_back()
    return differences, outs


def medians(rows):
    """Return the median of each column, in microseconds."""
    names = ("wall", "main_cpu", "process_cpu")
    return {name: round(statistics.median(column) * 1e6, 2) for name, column in zip(names, zip(*rows))}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--work", type=int, default=8, help="width of the hidden layer")
    parser.add_argument("--bare", action="store_true", help="only measure fits, without the probe")
    options = parser.parse_args()
    model, data = model_and_data(options.work)
    model.fit(data, epochs=2, verbose=0)
    version = keras_version()
    answer = {"keras": version, "tensorflow": tf.__version__, "steps": STEPS, "rounds": options.rounds}
    if options.bare:
        answer["out_us"] = medians([measure(model, data) for _ in range(options.rounds)])
    else:
        probe = sys.modules["_stallguard_probe"].probe
        differences, outs = pairs(probe.patches, model, data, options.rounds)
        answer.update(added_us=medians(differences), out_us=medians(outs), beats=probe.context.get("beats"))
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

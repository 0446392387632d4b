"""What the probe's hooks cost a real `fit`: main-thread CPU a step, hooks in against hooks out, in one process.

Run by `scripts/bench overhead` with the Python of a training environment; brings the probe in by itself.  Fits of
equal work alternate (out, in, out), and the median of the paired differences is taken: the machine's own swings
cancel.  The sender and poll threads run all the time.  The slow-down of a `fit` with 1 ms batches is the CPU that
the hooks add to the main thread, which does nothing else meanwhile, against that millisecond: the difference of
two wall times is lost in the noise of any machine that does something else too.

Prints one JSON object: step_us, slowdown_percent, and what they were made of.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
INJECT = os.path.join(os.path.dirname(__file__), "..", "..", "stallguard", "probe", "inject")
STEPS, BATCH = 200, 8
MILLISECOND = 1000  # us: the batches whose slow-down is told


def under_probe(arguments):
    """Run this program again with the probe in and somebody who receives its records; return its exit code."""
    with (
        tempfile.TemporaryDirectory(prefix="sg-") as place,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear,
    ):
        ear.bind(os.path.join(place, "s"))
        settings = {"SOCKET": ear.getsockname(), "RUN": place, "TOKEN": "1"}
        if (
            "--checkpoints" in arguments
        ):  # their hooks alone: what a save costs is bounded apart (bench resume)
            settings |= {"BACKUP": os.path.join(place, "backup"), "CHECKPOINT_COST": "1e-6"}
        environment = {**os.environ, "PYTHONPATH": os.path.abspath(INJECT)}
        environment.update({"STALLGUARD_" + name: value for name, value in settings.items()})
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), *arguments], env=environment)
        ear.settimeout(1)
        while child.poll() is None:
            try:
                ear.recv(4096)
            except OSError:
                continue
        return child.returncode


def model_and_data():
    """Return a small compiled model and a cached dataset of STEPS batches."""
    import numpy as np
    import tensorflow as tf

    keras = tf.keras
    x = np.random.default_rng(0).random((STEPS * BATCH, 16)).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(BATCH).cache().prefetch(8)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((16,)), *layers])
    model.compile("sgd", "mse", metrics=["mae"])
    model.fit(data, epochs=2, verbose=0)
    return model, data


def measure(model, data):
    """Fit once; return seconds a step: wall, main thread's CPU, process CPU."""
    began = time.perf_counter(), time.thread_time(), time.process_time()
    model.fit(data, epochs=1, verbose=0)
    ended = time.perf_counter(), time.thread_time(), time.process_time()
    return [(after - before) / STEPS for before, after in zip(began, ended)]


def pairs(patches, model, data, count):
    """Return for each of `count` rounds the difference in - mean(out before, out after), and all the outs."""
    differences, outs = [], []
    patches.take_out()
    first = measure(model, data)
    for _ in range(count):
        patches.put_back()
        inside = measure(model, data)
        patches.take_out()
        last = measure(model, data)
        differences.append([mid - (a + b) / 2 for a, mid, b in zip(first, inside, last)])
        outs.append(first)
        first = last
    patches.put_back()
    return differences, outs


def medians(rows):
    """Return the median of each column, in microseconds."""
    names = ("wall", "main_cpu", "process_cpu")
    return {name: round(statistics.median(column) * 1e6, 2) for name, column in zip(names, zip(*rows))}


def version_of(name):
    """Return the installed version of a package."""
    from importlib.metadata import version

    return version(name)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=121)
    parser.add_argument("--checkpoints", action="store_true", help="with the hooks of our own checkpoints in")
    options = parser.parse_args()
    if "_stallguard_probe" not in sys.modules:
        return under_probe(sys.argv[1:])
    patches = sys.modules["_stallguard_probe"].probe.patches
    small, outs = pairs(patches, *model_and_data(), options.rounds)
    added = medians(small)
    answer = {
        "step_us": added["main_cpu"],
        "slowdown_percent": round(100 * added["main_cpu"] / MILLISECOND, 3),
        "added_us": added,
        "without_us": medians(outs),
        "versions": {name: version_of(name) for name in ("keras",)},
    }
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the probe's hooks cost a real `fit` in main-thread time, measured in the training process.

Run by `scripts/bench overhead` with the Python of a training environment; brings the probe in by itself.  The sender
and poll threads run all the time.  A step's cost is taken by a stopwatch around the hook at the end of a batch and
another around Keras' own method inside it, in fits whose steps leave the caches as cold as they do for everybody;
what a fit and each of its epochs pay once comes on top, from fits of SHORT steps with the hooks in and out in turn:
for a fit of one epoch, and for one of LONG epochs.  That no step calls other code of ours is counted (`calls`).

The difference of whole fits with the hooks in and out says less: where a process's memory happens to lie moves that of
a wrapper that does nothing by more than the hooks cost.  The slow-down of a `fit` with 1 ms batches is a step's cost
against that millisecond.
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
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INJECT = os.path.join(ROOT, "stallguard", "probe", "inject")
STEPS, SHORT, BATCH = 400, 10, 8
SEVERAL, LONG = (11, 25)  # epochs: of the fits that show what one costs, and of a long fit (10,000 steps, 10 s at 1 ms)
MILLISECOND = 1000  # us: the batches whose slow-down is shown


def under_probe(arguments, program=__file__):
    """Run a program with the probe in and a process that receives its records; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="sg-") as place, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(os.path.join(place, "s"))
        sys.path.insert(0, ROOT)
        from stallguard.probe import settings

        # Only the hooks of the checkpoints are measured: `bench resume` measures what a save costs.
        saves = os.path.join(place, "checkpoints") if "--checkpoints" in arguments else ""
        # Else as supervisor/launcher.py has them if the user sets nothing.
        wish = settings.ProbeSettings(
            socket=ear.getsockname(), pages=place, token=1, checkpoints=saves, checkpoint_cost=1e-6, inside=8,
            seed="7", trackers=os.path.join(place, "trackers"),
        )  # fmt: skip
        path = os.pathsep.join(filter(None, (INJECT, os.environ.get("PYTHONPATH"))))  # it can hold libraries
        environment = {**os.environ, "PYTHONPATH": path, settings.VARIABLE: settings.encode(wish)}
        child = subprocess.Popen([sys.executable, os.path.abspath(program), *arguments], env=environment)
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


def cpu_of_fit(model, data, epochs=1):
    began = time.thread_time()
    model.fit(data, epochs=epochs, verbose=0)
    return (time.thread_time() - began) * 1e6


def compare(kinds, model, data, rounds, epochs=1):
    """Return the microseconds of a fit for each of `kinds`: functions that bring one about, called in turn."""
    found = {name: [] for name in kinds}
    for _ in range(rounds + 1):
        for name, turn in kinds.items():
            turn()
            found[name].append(cpu_of_fit(model, data, epochs))
    return {name: quieter_half(values[1:]) for name, values in found.items()}  # the first of each warms up


def quieter_half(values):
    """Return the mean of the smaller half of `values`: other work of the machine only adds to them."""
    return statistics.mean(sorted(values)[: (len(values) + 1) // 2])


class Stopwatch:
    """Times what the hook at the end of a batch does around Keras' own method."""

    def __init__(self, patches):
        self.owner = next(entry[0] for entry in patches._in if entry[1] == "on_train_batch_end")  # noqa: SLF001
        self.hook = vars(self.owner)["on_train_batch_end"]
        names = self.hook.__code__.co_freevars
        self.cell = self.hook.__closure__[names.index("original")]
        self.original = self.cell.cell_contents
        self.inside = 0
        self.times = []

    def time(self, hook, fit):
        """Return the microseconds a call of `hook` takes in `fit`, the call of the original apart."""
        self.times.clear()
        self.owner.on_train_batch_end = self._around(hook)
        self.cell.cell_contents = self._within(self.original)
        try:
            fit()
        finally:
            self.cell.cell_contents = self.original
            self.owner.on_train_batch_end = self.hook
        return statistics.mean(self.times) / 1000

    def _around(self, hook):
        clock, times = time.perf_counter_ns, self.times
        timed = hook or self._within(self.original)  # without a hook: what the stopwatches themselves take

        def on_train_batch_end(callbacks, batch, logs=None):
            began = clock()
            result = timed(callbacks, batch, logs)
            times.append(clock() - began - self.inside)
            return result

        return on_train_batch_end

    def _within(self, original):
        clock = time.perf_counter_ns

        def on_train_batch_end(callbacks, batch, logs=None):
            began = clock()
            result = original(callbacks, batch, logs)
            self.inside = clock() - began
            return result

        return on_train_batch_end

    def step(self, fit, rounds):
        """Return the microseconds that the hook adds to a step."""
        taken = [self.time(self.hook, fit) - self.time(None, fit) for _ in range(rounds)]
        return statistics.median(taken)


def calls_of(fit):
    count = [0]

    def profile(_frame, event, _argument):
        count[0] += event == "call"

    sys.setprofile(profile)
    fit()
    sys.setprofile(None)
    return count[0]


def calls_added(patches, model, long, short):
    """Return how many calls of Python functions the hooks add to a step, those that a fit makes once left out."""
    found = {}
    for name, turn in (("out", patches.take_out), ("in", patches.put_back)):
        turn()
        for data in (long, short):
            model.fit(data, epochs=1, verbose=0)
            found[name, data] = calls_of(lambda data=data: model.fit(data, epochs=1, verbose=0))
    added = [found["in", data] - found["out", data] for data in (long, short)]
    return (added[0] - added[1]) / (STEPS - SHORT)


def version_of(name):
    from importlib.metadata import version

    return version(name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--checkpoints", action="store_true", help="with the hooks of our own checkpoints in")
    options = parser.parse_args()
    if "_stallguard_probe" not in sys.modules:
        if os.environ.get("PYTHONPATH", "").startswith(INJECT):
            sys.exit("the probe is not in")
        return under_probe(sys.argv[1:])
    print(json.dumps(answer(sys.modules["_stallguard_probe"].probe.patches, options.rounds)))
    return 0


def answer(patches, rounds):
    model, data = model_and_data()
    short = data.take(SHORT).cache()
    hook = Stopwatch(patches).step(lambda: model.fit(data, epochs=1, verbose=0), max(1, rounds // 3))
    once = compare({"out": patches.take_out, "in": patches.put_back}, model, short, 3 * rounds)
    fit = once["in"] - once["out"]
    several = compare({"out": patches.take_out, "in": patches.put_back}, model, short, rounds, SEVERAL)
    epoch = (several["in"] - several["out"] - fit) / (SEVERAL - 1)
    step = hook + fit / STEPS
    long_step = hook + (fit + (LONG - 1) * epoch) / (LONG * STEPS)
    return {
        "step_us": round(step, 2),
        "slowdown_percent": round(100 * step / MILLISECOND, 3),
        "long_step_us": round(long_step, 2),
        "long_slowdown_percent": round(100 * long_step / MILLISECOND, 3),
        "fit_us": round(fit, 1),
        "epoch_us": round(epoch, 1),
        "calls": round(calls_added(patches, model, data, short), 2),
        "keras": version_of("keras"),
    }


if __name__ == "__main__":
    sys.exit(main())

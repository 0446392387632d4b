"""Trainings whose steps take a given time, and one of a large model: the child of the parts `cost` and `save`.

    gpu_cost_child.py turns KIND SOCKET          trains the turns that each line from the socket asks for
    gpu_cost_child.py save KIND SECONDS MB FILE  trains a model of so many MB, and writes when each step ended

KIND: keras-torch, keras-jax, torch, jax.  The rows of a batch decide how long a step takes: they enter narrow, so that
the GPU multiplies and little is copied.  Every loop reads its loss, as one that shows it does, and so waits for the
GPU in each step: what the guard adds to a step is not hidden behind the GPU's work.
"""

import functools
import json
import os
import signal
import socket
import sys
import time

import numpy as np

import stallguard

DEVICE = os.environ["GPU_CHILD_DEVICE"]
NARROW = 8  # columns of the input
# Of the hidden layer: on a GPU 4 MB of weights, which a checkpoint at the end of a fit writes at once, not beside.
WIDE = 1024 if DEVICE == "cuda" else 64
BLOCK = 4096  # of a layer of the large model: 67 MB


class Clock:
    """Takes the time of `steps` steps after the first `settle`.  `wait`: waits for the device."""

    def __init__(self, settle, steps, wait):
        self.left, self.steps, self.wait, self.began = settle + steps, steps, wait, 0.0
        self.step = None  # seconds of a step, once all are done

    def tick(self):
        """Register the end of a step."""
        self.left -= 1
        if self.left == self.steps:
            self.wait()
            self.began = time.perf_counter()
        elif not self.left:
            self.wait()
            self.step = (time.perf_counter() - self.began) / self.steps


class Turns:
    """Has parts of the guard act on this process in a turn: the hooks, the probe's thread, the guard itself."""

    def __init__(self):
        self.probe = sys.modules["_stallguard_probe"].probe
        self.guard, self.hooks, self.acting = os.getppid(), {}, {"hooks", "thread", "guard"}
        self.switches = {"hooks": self.switch_hooks, "thread": self.switch_thread, "guard": self.switch_guard}

    def have(self, parts):
        """Have these act, and no others."""
        for part, switch in self.switches.items():
            if (part in parts) != (part in self.acting):
                switch(part in parts)
        self.acting = set(parts)

    def switch_hooks(self, on):
        """Put the wrappers, and the hook that torch itself calls after a step, in or out."""
        (self.probe.patches.put_back if on else self.probe.patches.take_out)()
        optimizer = sys.modules.get("torch.optim.optimizer")
        if optimizer is None:
            return
        hooks = optimizer._global_optimizer_post_hooks  # noqa: SLF001 - torch has no other list of them
        if on:
            hooks.update(self.hooks)
        else:
            own = [key for key, hook in hooks.items() if hook.__module__.startswith("_stallguard_probe")]
            self.hooks = {key: hooks.pop(key) for key in own}

    def switch_thread(self, on):
        """Have the thread go on, or wait for the lock that it takes before it does anything."""
        turning = self.probe.sender._turning  # noqa: SLF001 - nothing else pauses it
        (turning.release if on else turning.acquire)()

    def switch_guard(self, on):
        """Continue or stop the guard."""
        os.kill(self.guard, signal.SIGCONT if on else signal.SIGSTOP)


@functools.lru_cache(maxsize=2)
def batch(rows):
    x = np.linspace(-1, 1, rows * NARROW, dtype="float32").reshape(rows, NARROW)
    return x, x[:, :1].copy()


class OfKeras:
    """Model.fit, one for each turn, so that a turn begins as every fit does."""

    def __init__(self, widths):
        import keras

        self.keras = keras
        layers = [keras.layers.Dense(width, activation="relu") for width in widths]
        self.model = keras.Sequential([keras.layers.Input((NARROW,)), *layers, keras.layers.Dense(1)])
        self.model.compile(keras.optimizers.SGD(1e-5), "mse")
        if keras.backend.backend() == "torch" and DEVICE not in str(self.model.weights[0].value.device):
            sys.exit("torch has no GPU")

    def wait(self):
        if self.keras.backend.backend() == "torch":
            synchronize_torch()
        else:
            synchronize_jax()

    def train(self, rows, steps, tick, guarded=True):
        """Train so many steps; call `tick` at the end of each."""
        pair = batch(rows)

        class Ticking(self.keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                tick()

        def batches():
            while True:
                yield pair

        self.model.fit(batches(), steps_per_epoch=steps, verbose=0, callbacks=[Ticking()])


def synchronize_torch():
    import torch

    if DEVICE == "cuda":
        torch.cuda.synchronize()


def synchronize_jax():
    import jax

    jax.block_until_ready(jax.device_put(1.0) + 1)  # a device does what it is given in that order


class OfTorch:
    """A plain loop of torch; `save` and `load` are its own checkpoints."""

    def __init__(self, widths):
        import torch

        self.torch = torch
        layers, before = [], NARROW
        for width in widths:
            layers += [torch.nn.Linear(before, width), torch.nn.ReLU()]
            before = width
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(before, 1)).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-5)
        self.wait = synchronize_torch

    def save(self, path):
        self.torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, path)

    def load(self, path):
        raise AssertionError("nothing is resumed here")

    def train(self, rows, steps, tick, guarded=True):
        x, y = (self.torch.from_numpy(one).to(DEVICE) for one in batch(rows))
        for _ in range(steps):
            self.optimizer.zero_grad()
            loss = ((self.model(x) - y) ** 2).mean()
            loss.backward()
            self.optimizer.step()
            loss.item()
            tick()


class OfJax:
    """A plain loop of JAX, which counts its steps by stallguard.beat() if it is guarded."""

    def __init__(self, widths):
        import jax

        self.wait = synchronize_jax
        self.jax, generator, before, self.weights = jax, np.random.default_rng(0), NARROW, []
        for width in (*widths, 1):
            self.weights.append(jax.device_put(generator.normal(0, 0.02, (before, width)).astype("float32")))
            before = width

        def loss_of(weights, x, y):
            for one in weights[:-1]:
                x = jax.nn.relu(x @ one)
            return ((x @ weights[-1] - y) ** 2).mean()

        def step(weights, x, y):
            loss, slopes = jax.value_and_grad(loss_of)(weights, x, y)
            return [one - 1e-5 * slope for one, slope in zip(weights, slopes)], loss

        self.step = jax.jit(step)

    def train(self, rows, steps, tick, guarded=True):
        x, y = map(self.jax.device_put, batch(rows))
        for _ in range(steps):
            self.weights, loss = self.step(self.weights, x, y)
            float(loss)
            if guarded:
                stallguard.beat()
            tick()


KINDS = {"keras-torch": OfKeras, "keras-jax": OfKeras, "torch": OfTorch, "jax": OfJax}


class Over(Exception):
    """Ends the training of the large model."""


def turns(kind, path):
    """Answer each line {"rows", "settle", "steps", "turns"} with the seconds a step of each turn.

    A turn is a list of the parts that act in it.
    """
    training = KINDS[kind]([WIDE, WIDE])
    acting = Turns()
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        lines = channel.makefile("rw")
        for line in iter(lines.readline, ""):
            order, found = json.loads(line), []
            for parts in order["turns"]:
                acting.have(parts)
                clock = Clock(order["settle"], order["steps"], training.wait)
                training.train(order["rows"], clock.left, clock.tick, "hooks" in parts)
                found.append(clock.step)
            acting.have(acting.switches)
            lines.write(json.dumps({"steps": found}) + "\n")
            lines.flush()


def save(kind, seconds, megabytes, file):
    """Train a large model for so many seconds; write when each step ended and how many saves there were by then."""
    block = BLOCK if DEVICE == "cuda" else BLOCK // 4
    layers = max(1, round(float(megabytes) * 1e6 / (block * block * 4)))
    training = KINDS[kind]([block] * (layers + 1))  # the first one is small
    times, counts = [], []
    after_step = saved_by_script(training, file + ".state") if kind == "torch" else saves
    end = time.monotonic() + float(seconds)

    def tick():
        training.wait()
        counts.append(after_step())
        times.append(time.monotonic())
        if times[-1] > end:
            raise Over

    try:
        training.train(32, 10**9, tick)
    except Over:
        with open(file, "w") as out:
            json.dump({"times": times, "saves": counts}, out)


def saves():
    """Return how many checkpoints were finished, by the guard or by torch.save, as the probe counts them."""
    # Not kept in a variable: the guard follows what a callback reaches, and its own objects are no state of a script.
    return sys.modules["_stallguard_probe"].probe.context.get("saves") if stallguard.guarded() else 0


def saved_by_script(training, path):
    """Have the training save itself from now on; return what does so after a step and returns how often it has."""
    if stallguard.guarded():
        stallguard.checkpoint(training.save, training.load)

        def beat():
            stallguard.beat()
            return saves()

        return beat
    every, began, count = float(os.environ["SAVE_EVERY"]), time.monotonic(), [0]

    def look():
        if time.monotonic() > began + every * (count[0] + 1):
            training.save(path)
            count[0] += 1
        return count[0]

    return look


if __name__ == "__main__":
    {"turns": turns, "save": save}[sys.argv[1]](*sys.argv[2:])

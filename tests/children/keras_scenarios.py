"""Trains with Keras 3 on torch or JAX, or with torch alone; prints what the probe counted each time, as JSON."""
# ruff: noqa: B905  the Python of a training environment may be 3.9, whose zip takes no strict

import json
import sys

import numpy as np

PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
COUNTERS = ("beats", "checks", "fits", "saves")
rng = np.random.default_rng(0)
X = rng.random((640, 16)).astype("float32")
Y = X[:, :1]


def model():
    """Return a small compiled model whose weights are always the same."""
    import keras

    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.layers.Input((16,)), keras.layers.Dense(32), keras.layers.Dense(1)])
    made.compile("adam", "mse")
    return made


def fit():
    return model().fit(X, Y, epochs=2, batch_size=32, verbose=0, validation_data=(X[:64], Y[:64])).history["loss"]


def predict():
    model().predict(X, batch_size=32, verbose=0)


def single_batches():
    made = model()
    return [float(made.train_on_batch(X[:32], Y[:32])) for _ in range(5)]


def threads():
    """Return the threads that the dispatch of callbacks ran in: Keras' pool, unless somebody forbids that."""
    import threading

    import keras

    names = set()

    class Seen(keras.callbacks.Callback):
        async_safe = True

        def on_train_batch_end(self, batch, logs=None):
            names.add(threading.current_thread().name.split("_")[0])

    model().fit(X[:128], Y[:128], batch_size=32, verbose=0, callbacks=[Seen()])
    return sorted(names)


def torch_loop():
    """Plain PyTorch with a DataLoader and a checkpoint."""
    import io

    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    losses = []
    for x, y in torch.utils.data.DataLoader(rows, batch_size=32):
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    torch.save(net.state_dict(), io.BytesIO())
    return losses


def torch_compiled():
    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(16, 1)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    compiled = torch.compile(net, backend="eager")
    for _ in range(20):
        optimizer.zero_grad()
        (compiled(torch.tensor(X[:32])) ** 2).mean().backward()
        optimizer.step()


def counters():
    """Return the record's counters, all zero without the probe."""
    return [PROBE.context.get(name) if PROBE else 0 for name in COUNTERS]


def run(scenario):
    """Run one scenario and return what grew."""
    before = counters()
    result = scenario()
    grown = dict(zip(COUNTERS, (b - a for a, b in zip(before, counters()))))
    grown["source"] = PROBE.context.get("source") if PROBE else 0
    grown["result"] = [v if isinstance(v, str) else float(v).hex() for v in result or ()]
    return grown


if __name__ == "__main__":
    print(json.dumps({name: run(globals()[name]) for name in sys.argv[1:]}))

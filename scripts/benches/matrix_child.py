"""The training of one cell of the bench `matrix`: a loop in which one thing happens, at one place, so often.

    matrix_child.py PLAN      PLAN: JSON with loop, what, where, again, folder, output

It knows nothing of stallguard, except the loop "beat", which counts its batches itself.  In `folder` it keeps how often
it happened, and when, for the next attempt and for the bench.  Python 3.9 grammar.
"""

import atexit
import ctypes
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

ROWS, BATCHES, EPOCHS, WIDTH = 16, 12, 3, 4
AT = (1, 5)  # the batch in which it happens: epoch, batch
PACE = 0.06  # seconds a batch
CONTINUED = 9.0  # seconds after which a stopped process is continued
SLOW = 0.4  # seconds by which a slow batch is longer


class Trouble:
    """What happens, where and how often."""

    def __init__(self, plan):
        self.what, self.where, self.again = plan["what"], plan["where"], plan["again"]
        self.folder = Path(plan["folder"])
        self.position = [-1, -1]
        self.started = 0
        self.fitting = True  # Keras calls a layer before the first batch, too, and takes its errors for its own
        self.values = []

    def at(self, where, rows=0):
        """Come to a place; `rows`: of the batch, if they are known there."""
        if where != self.where or not self.is_due(rows):
            return
        happened = self.happened() + 1
        (self.folder / f"happened-{happened}").write_text(repr(time.time()))
        HAPPENS[self.what](self)

    def happened(self):
        """Return how often it has happened, in all attempts."""
        return len(list(self.folder.glob("happened-*")))

    def is_due(self, rows):
        """Return whether it happens now."""
        happened = self.happened()
        most = {"once": 1, "twice": 2, "always": 1000, "resumed": 2, "half": 1000, "quarter": 1000}[self.again]
        if happened >= most:
            return False
        if (self.again == "half" and 0 < rows <= ROWS // 2) or (self.again == "quarter" and 0 < rows <= ROWS // 4):
            return False
        if self.where in ("import", "start", "tracing", "first", "exit"):
            return True
        if self.again == "resumed" and happened:
            return True
        if self.where in ("validation", "epoch-end", "save"):
            return self.position[0] >= AT[0]
        return tuple(self.position) >= AT

    def trains(self, epoch, batch):
        """Begin a batch; keep the first one of this process, and when that was, for the bench."""
        self.position[:] = [epoch, batch]
        first = self.folder / f"first-{os.getpid()}"
        if not first.exists():
            first.write_text(json.dumps([time.time(), epoch, batch]))
        time.sleep(PACE)

    def lasts(self):
        """Return whether a change that has begun still holds, as slow batches do."""
        return self.happened() > 0 and self.what in ("slow", "nan")


# ---- what happens -------------------------------------------------------------------------------------------------


def lock(_):
    """Wait for a lock of Python that this thread holds."""
    one = threading.Lock()
    one.acquire()
    one.acquire()


def _mutex(library):
    mutex = ctypes.create_string_buffer(256)
    library.pthread_mutex_init(mutex, None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def native_lock(_):
    """Wait for a lock of the C library; Python goes on."""
    _mutex(ctypes.CDLL(None))


def held_interpreter(_):
    """Wait for a lock of the C library, with the interpreter's lock."""
    _mutex(ctypes.PyDLL(None))


def sleep(_):
    time.sleep(1e6)


def spin(_):
    while True:
        pass


def native_spin(_):
    """Compute in C without end; Python goes on."""
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)


def dead_socket(_):
    """Read what no one sends."""
    ours, theirs = socket.socketpair()
    ours.recv(1)
    theirs.close()


def fifo(trouble):
    """Read from a FIFO without a writer."""
    path = trouble.folder / f"fifo-{os.getpid()}"
    os.mkfifo(str(path))
    descriptor = os.open(str(path), os.O_RDWR)
    os.read(descriptor, 1)


def die():
    """Be a worker that is killed at its task, when stallguard has seen it."""
    time.sleep(2.0)
    os.kill(os.getpid(), signal.SIGKILL)


def dead_worker(_):
    """Wait for the answer of a worker that is dead; its successor does not get the task."""
    import multiprocessing

    multiprocessing.get_context("spawn").Pool(1).apply_async(die).get()


def stop(_):
    """Be stopped, and continued later."""
    subprocess.Popen(["/bin/sh", "-c", f"sleep {CONTINUED}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def crash(_):
    """Read where nothing is."""
    ctypes.string_at(0)


def kill(_):
    os.kill(os.getpid(), signal.SIGKILL)


def memory(_):
    """Find no memory."""
    raise MemoryError("cannot allocate 64 GiB")


def error(_):
    raise ValueError("labels and logits differ")


def nothing(_):
    """Go on; what lasts is done by the loop."""


HAPPENS = {
    "lock": lock, "native-lock": native_lock, "interpreter": held_interpreter, "sleep": sleep, "spin": spin,
    "native-spin": native_spin, "socket": dead_socket, "fifo": fifo, "worker": dead_worker, "stop": stop,
    "crash": crash, "kill": kill, "memory": memory, "error": error, "nan": nothing, "slow": nothing,
    "nothing": nothing,
}  # fmt: skip


# ---- loops --------------------------------------------------------------------------------------------------------


def rows_of(array):
    """Return the rows of what a step got."""
    return int(array.shape[0])


def keras_module():
    if LOOP == "keras2":
        import tensorflow

        return tensorflow.keras
    import keras

    return keras


def device_layer(keras, trouble):
    """Return a layer whose call runs Python in each step."""
    backend = keras.backend.backend()

    def called(x):
        if not trouble.fitting:
            return x
        if trouble.lasts() and trouble.what == "slow":
            time.sleep(SLOW)
        trouble.at("first" if not trouble.started else "step", rows_of(x))
        trouble.started = 1
        return x * float("nan") if trouble.lasts() and trouble.what == "nan" else x

    class Device(keras.layers.Layer):
        def call(self, x):
            trouble.at("tracing")
            if backend == "tensorflow":
                import tensorflow as tf

                computed = tf.py_function(called, [x], tf.float32)
                computed.set_shape(x.shape)
                return computed
            if backend == "jax":
                import jax
                import numpy as np

                shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
                return jax.pure_callback(lambda y: np.asarray(called(np.asarray(y)), y.dtype), shape, x)
            return called(x)

        def compute_output_shape(self, shape):
            return shape

        def save_own_variables(self, store):
            if trouble.saving:
                trouble.at("save")
            super().save_own_variables(store)

    return Device()


def keras_fit(trouble):
    import numpy as np

    keras = keras_module()
    trouble.saving = trouble.fitting = False
    trouble.at("import")
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(1)
    x, y = (generator.random((ROWS * BATCHES, WIDTH)).astype("float32") for _ in range(2))

    class Places(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            trouble.at("start")

        def on_epoch_begin(self, epoch, logs=None):
            trouble.fitting = True
            trouble.position[:] = [epoch, 0]

        def on_train_batch_begin(self, batch, logs=None):
            trouble.trains(trouble.position[0], batch)

        def on_train_batch_end(self, batch, logs=None):
            trouble.at("callback")

        def on_test_batch_end(self, batch, logs=None):
            trouble.at("validation")

        def on_epoch_end(self, epoch, logs=None):
            trouble.at("epoch-end")
            if trouble.where == "save":
                trouble.saving = True
                self.model.save_weights(str(trouble.folder / "saved.weights.h5"))
                trouble.saving = False

    base = keras.utils.PyDataset if hasattr(keras.utils, "PyDataset") else keras.utils.Sequence

    class Data(base):
        def __len__(self):
            return BATCHES

        def __getitem__(self, index):
            trouble.at("input")
            part = slice(index * ROWS, index * ROWS + ROWS)
            return x[part], y[part, :1]

    model = keras.Sequential(
        [keras.Input((WIDTH,)), device_layer(keras, trouble), keras.layers.Dense(4), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    data = (Data(),) if trouble.where == "input" else (x, y[:, :1])
    how = {} if trouble.where == "input" else {"batch_size": ROWS}
    model.fit(
        *data, **how, epochs=EPOCHS, shuffle=False, verbose=2 if PRINTS else 0, callbacks=[Places()],
        validation_data=(x[:ROWS], y[:ROWS, :1]) if trouble.where == "validation" else None,
    )  # fmt: skip
    return float(sum(np.abs(weight).sum() for weight in model.get_weights()))


def by_hand(trouble, step, validate=None, kept=()):
    """Run a loop of the script's own; `step(number)` trains a batch.  `kept`: what it hands over, if it does."""
    trouble.at("start")
    epochs = ((epoch, enumerate(range(BATCHES))) for epoch in range(EPOCHS))
    if LOOP.startswith("track-"):
        try:
            import stallguard

            epochs = stallguard.track(*kept, range(BATCHES), epochs=EPOCHS)
        except ImportError:  # the undisturbed run
            pass
    for epoch, batches in epochs:
        for batch, _ in batches:
            trouble.trains(epoch, batch)
            trouble.at("input")
            step(epoch * BATCHES + batch)
            trouble.at("callback")
        if PRINTS:
            print("epoch", epoch, flush=True)
        if validate is not None:
            validate()
        trouble.at("validation")
        trouble.at("epoch-end")


def keras_batches(trouble):
    import numpy as np

    keras = keras_module()
    trouble.saving = False
    trouble.at("import")
    keras.utils.set_random_seed(1)
    generator = np.random.default_rng(1)
    x, y = generator.random((ROWS, WIDTH)).astype("float32"), generator.random((ROWS, 1)).astype("float32")
    model = keras.Sequential([keras.Input((WIDTH,)), device_layer(keras, trouble), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    # A call for a validation is never cut into slices.
    validate = (lambda: model.test_on_batch(x, y)) if trouble.where == "validation" else None
    by_hand(trouble, lambda _: model.train_on_batch(x, y), validate)
    return float(sum(np.abs(weight).sum() for weight in model.get_weights()))


def tape(trouble):
    import keras
    import numpy as np
    import tensorflow as tf

    trouble.saving = False
    trouble.at("import")
    keras.utils.set_random_seed(1)
    x = tf.constant(np.random.default_rng(1).random((ROWS, WIDTH)), tf.float32)
    model = keras.Sequential([keras.Input((WIDTH,)), device_layer(keras, trouble), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)

    @tf.function
    def train():
        with tf.GradientTape() as recorded:
            loss = tf.reduce_mean(model(x) ** 2)
        optimizer.apply_gradients(zip(recorded.gradient(loss, model.trainable_variables), model.trainable_variables))

    by_hand(trouble, lambda _: train())
    return float(sum(np.abs(weight).sum() for weight in model.get_weights()))


def passes(trouble, x):
    """Do what a part of a model does whose call runs Python in each step."""
    if trouble.lasts() and trouble.what == "slow":
        time.sleep(SLOW)
    trouble.at("step" if trouble.started else "first", rows_of(x))
    trouble.started = 1
    return x * float("nan") if trouble.lasts() and trouble.what == "nan" else x


def torch_model(trouble):
    import torch

    torch.manual_seed(1)

    class Device(torch.nn.Module):
        def forward(self, x):
            return passes(trouble, x) if self.training else x

    return torch.nn.Sequential(Device(), torch.nn.Linear(WIDTH, 1))


def weights_of(model):
    return float(sum(parameter.detach().abs().sum() for parameter in model.parameters()))


def torch_loop(trouble):
    import torch

    trouble.at("import")
    model = torch_model(trouble)
    x = torch.rand(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def train(_):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    by_hand(trouble, train, kept=(model, optimizer))
    return weights_of(model)


def torch_rows(trouble):
    """Return a dataset with the rows of an epoch."""
    import torch

    x = torch.rand(ROWS * BATCHES, WIDTH)

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, index):
            trouble.at("input")
            return {"x": x[index]}

    return Rows()


def trainer_fit(trouble):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    trouble.at("import")

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch_model(trouble)

        def forward(self, x):
            return {"loss": self.inner(x).square().mean()}

    class Places(TrainerCallback):
        def on_train_begin(self, args, state, control, **named):
            trouble.at("start")

        def on_step_begin(self, args, state, control, **named):
            trouble.trains(*divmod(state.global_step, BATCHES))

        def on_step_end(self, args, state, control, **named):
            trouble.at("callback")

        def on_epoch_end(self, args, state, control, **named):
            trouble.at("epoch-end")

        def on_prediction_step(self, args, state, control, **named):
            trouble.at("validation")

    arguments = TrainingArguments(
        str(trouble.folder / "out"), num_train_epochs=EPOCHS, per_device_train_batch_size=ROWS, report_to=[],
        save_strategy="no", disable_tqdm=True, logging_strategy="epoch" if PRINTS else "no", use_cpu=True,
        eval_strategy="epoch" if trouble.where == "validation" else "no", remove_unused_columns=False,
    )  # fmt: skip
    model, rows = Model(), torch_rows(trouble)
    plain = torch_rows(Trouble({"what": "", "where": "", "again": "once", "folder": trouble.folder}))
    trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=plain, callbacks=[Places()])
    trainer.train()
    return weights_of(model)


def lightning_fit(trouble):
    import torch
    from lightning import pytorch as lightning

    trouble.at("import")
    model = torch_model(trouble)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = model

        def training_step(self, batch, index):
            return self.inner(batch["x"]).square().mean()

        def validation_step(self, batch, index):
            trouble.at("validation")

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    class Places(lightning.Callback):
        def on_train_start(self, trainer, module):
            trouble.at("start")

        def on_train_batch_start(self, trainer, module, batch, index):
            trouble.trains(trainer.current_epoch, index)

        def on_train_batch_end(self, trainer, module, outputs, batch, index):
            trouble.at("callback")

        def on_train_epoch_end(self, trainer, module):
            if PRINTS:
                print("epoch", trainer.current_epoch, flush=True)
            trouble.at("epoch-end")

    loader = torch.utils.data.DataLoader(torch_rows(trouble), ROWS)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=EPOCHS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=0,
        default_root_dir=str(trouble.folder), callbacks=[Places()],
    )  # fmt: skip
    trainer.fit(Module(), loader, torch.utils.data.DataLoader([1]) if trouble.where == "validation" else None)
    return weights_of(model)


def mlx_loop(trouble):
    import mlx.core as mx
    from mlx import nn, optimizers
    from mlx.utils import tree_flatten

    trouble.at("import")
    mx.random.seed(1)

    class Device(nn.Module):
        def __call__(self, x):
            return passes(trouble, x)

    model, optimizer = nn.Sequential(Device(), nn.Linear(WIDTH, 1)), optimizers.SGD(0.01)
    x = mx.random.uniform(shape=(ROWS, WIDTH))
    gradient = nn.value_and_grad(model, lambda model, x: model(x).square().mean())

    def train(_):
        loss, slopes = gradient(model, x)
        optimizer.update(model, slopes)
        mx.eval(loss, model.parameters(), optimizer.state)

    by_hand(trouble, train, kept=(model, optimizer))
    return float(sum(one.abs().sum().item() for _, one in tree_flatten(model.parameters())))


def beat(trouble):
    try:
        import stallguard
    except ImportError:  # the undisturbed run
        stallguard = None

    def train(number):
        if trouble.lasts() and trouble.what == "slow":
            time.sleep(SLOW)
        trouble.at("step" if trouble.started else "first")
        trouble.started = 1
        trouble.values.append(number)
        if stallguard is not None:
            stallguard.beat()

    by_hand(trouble, train)
    return float(sum(trouble.values))


LOOPS = {
    "keras": keras_fit, "keras-jax": keras_fit, "keras-torch": keras_fit, "keras2": keras_fit,
    "batches": keras_batches, "tape": tape, "torch": torch_loop, "track-torch": torch_loop, "trainer": trainer_fit,
    "lightning": lightning_fit, "mlx": mlx_loop, "track-mlx": mlx_loop, "beat": beat,
}  # fmt: skip


def main():
    result = LOOPS[LOOP](trouble)
    print(f"trained {result:.4f}", flush=True)
    (trouble.folder / "trained").write_text(f"{result:.6f}")
    if trouble.where == "exit":
        atexit.register(trouble.at, "exit")


if __name__ == "__main__":
    PLAN = json.loads(sys.argv[1])
    LOOP, PRINTS = PLAN["loop"], PLAN["output"] == "printing"
    trouble = Trouble(PLAN)
    main()

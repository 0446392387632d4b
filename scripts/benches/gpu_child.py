"""A small deterministic training, counted or resumed as users' scripts are: the child of the bench `gpu`.

    gpu_child.py PLAN     JSON: framework, fault, place, at, wait, seconds, epochs, gpu (whether there is one)

Each epoch trains STEPS batches at about 5 ms, validates and saves.  At its end `trained.json` has the hash of the
weights.  What happens to it, and the marks at the ends of lines, are in gpu_zoo/faults_child.py.  Python 3.9 grammar.
"""

import hashlib
import json
import sys
import time

from gpu_zoo.faults_child import ROWS, Fault, OfJax, OfTorch, fail, surround

STEPS, WIDTH, PACE = 150, 128, 0.004  # batches an epoch; features; seconds a batch beside what it computes


def data():
    import numpy as np

    generator = np.random.default_rng(5)
    x = generator.standard_normal((STEPS * ROWS, WIDTH)).astype("float32")
    return x, np.tanh(x[:, :1] * x[:, 1:2])


def trained(arrays):
    """Keep what was learned."""
    import numpy as np

    flat = [np.ascontiguousarray(array, "float32").ravel() for array in arrays]
    digest = hashlib.sha256(b"".join(array.tobytes() for array in flat)).hexdigest()
    total = float(sum(np.abs(array.astype("float64")).sum() for array in flat))
    with open("trained.json", "w") as file:
        json.dump({"sha256": digest, "sum": total}, file)


# ---- torch


def of_torch():
    """Return torch, set to be deterministic, and let the fault use it."""
    import torch

    torch.manual_seed(5)
    torch.use_deterministic_algorithms(True, warn_only=True)
    fault.use(OfTorch(fault.cuda))
    return torch


def network(torch):
    layers = [torch.nn.Linear(WIDTH, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(256, 1))


def weights_of(model):
    return [value.detach().cpu().numpy() for value in model.state_dict().values()]


def torch_batches(torch):
    """Return the data as a loader gives it: batches from a worker where that is what is tried."""
    x, y = map(torch.from_numpy, data())

    class Batches(torch.utils.data.Dataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            fault.starve(index)
            part = slice(index * ROWS, index * ROWS + ROWS)
            return x[part], y[part]

    workers = 1 if fault.name == "loader" else 0
    return torch.utils.data.DataLoader(Batches(), batch_size=None, shuffle=False, num_workers=workers)


def by_torch():
    torch = of_torch()
    device = fault.accelerator.device
    model = network(torch).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    batches = torch_batches(torch)

    def step(x, y, number):
        fault.at("first")
        optimizer.zero_grad()
        # The first product of matrices allocates memory for the library that computes it, which waits for the device.
        loss = (model(x) - y).square().mean()  # waits: first
        fault.at("step", number, len(x))
        loss.backward()
        optimizer.step()
        return loss.item()  # waits: step first streams host

    def callback(number):
        fault.at("callback", number)
        fault.accelerator.synchronize()

    def validate(epoch):
        fault.at("validation", epoch)
        with torch.no_grad():
            return [float(model(x.to(device)).mean()) for x, _ in list(validation)]  # waits: validation

    validation = [(x, y) for x, y in batches][:5] if fault.name != "loader" else []
    number = 0
    for epoch in range(EPOCHS):
        for x, y in batches:
            time.sleep(PACE)
            tried(step, x.to(device), y.to(device), number)
            callback(number)
            number += 1
        validate(epoch)
        fault.at("save", epoch)
        torch.save(model.state_dict(), "saved.pt")  # waits: save
    trained(weights_of(model))


def tried(step, *arguments):
    """Make a step; if that is what is tried, catch its errors and make it again, for ever."""
    while True:
        try:
            return step(*arguments)
        except RuntimeError as error:
            if fault.name != "sticky":
                raise
            fail(error)


def by_trainer():
    import transformers

    torch = of_torch()
    x, y = map(torch.from_numpy, data())

    class Samples(torch.utils.data.Dataset):
        def __init__(self, count):
            self.count = count

        def __len__(self):
            return self.count

        def __getitem__(self, index):
            if index % ROWS == 0:
                fault.starve(index // ROWS)
            return {"x": x[index], "labels": y[index]}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.number = network(torch), 0

        def forward(self, x, labels=None):
            if self.training:
                fault.at("first")
                fault.at("step", self.number, len(x))
                self.number += 1
            else:
                fault.at("validation", int(self.epoch))
            out = self.inner(x)  # waits: step first validation streams host
            return {"loss": (out - labels).square().mean(), "logits": out}

    class Places(transformers.TrainerCallback):
        def on_epoch_begin(self, args, state, control, **more):
            model.epoch = state.epoch or 0

        def on_step_begin(self, args, state, control, **more):
            time.sleep(PACE)

        def on_step_end(self, args, state, control, **more):
            fault.at("callback", state.global_step)
            if fault.place == "callback":
                fault.accelerator.synchronize()

        def on_evaluate(self, args, state, control, **more):
            fault.at("save", int(state.epoch) - 1)

    model = Model()
    options = transformers.TrainingArguments(
        output_dir="saved", per_device_train_batch_size=ROWS, per_device_eval_batch_size=ROWS, num_train_epochs=EPOCHS,
        learning_rate=1e-3, seed=5, eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, report_to=[],
        disable_tqdm=True, logging_strategy="epoch", use_cpu=not fault.cuda,
        dataloader_num_workers=int(fault.name == "loader"), remove_unused_columns=False,
    )  # fmt: skip
    trainer = transformers.Trainer(
        model=model, args=options, train_dataset=Samples(STEPS * ROWS), eval_dataset=Samples(5 * ROWS),
        callbacks=[Places()],
    )  # fmt: skip
    trainer.train()  # waits: step first validation save streams host
    trained(weights_of(model.inner))


def by_lightning():
    try:
        import lightning.pytorch as lightning
    except ImportError:
        import pytorch_lightning as lightning
    torch = of_torch()

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.inner = network(torch)

        def training_step(self, batch, index):
            fault.at("first")
            loss = (self.inner(batch[0]) - batch[1]).square().mean()  # waits: step first streams host
            fault.at("step", self.global_step, len(batch[0]))
            return loss

        def validation_step(self, batch, index):
            fault.at("validation", self.current_epoch)
            self.log("mean", (self.inner(batch[0]) - batch[1]).square().mean())  # waits: validation

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.05)

        def on_train_batch_start(self, batch, index):
            time.sleep(PACE)

        def on_train_batch_end(self, outputs, batch, index):
            fault.at("callback", self.global_step)
            if fault.place == "callback":
                fault.accelerator.synchronize()

        def on_save_checkpoint(self, checkpoint):
            fault.at("save", self.current_epoch)

    model, batches = Model(), torch_batches(torch)
    trainer = lightning.Trainer(
        accelerator="gpu" if fault.cuda else "cpu", devices=1, max_epochs=EPOCHS, logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, limit_val_batches=5,
    )  # fmt: skip
    trainer.fit(model, batches, batches)  # waits: step first validation save streams host
    trained(weights_of(model.inner))


# ---- Keras


def by_keras():
    import keras

    on_torch = keras.backend.backend() == "torch"
    if on_torch:
        of_torch()
    else:
        import jax  # noqa: F401

        fault.use(OfJax(fault.cuda))
    keras.utils.set_random_seed(5)
    x, y = data()
    now = [0]  # the step

    class Device(keras.layers.Layer):
        def call(self, x, training=False):
            if on_torch and training:
                fault.at("first")
                fault.at("step", now[0], int(x.shape[0]))
            return x

        def compute_output_shape(self, shape):
            return shape

    class Places(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            time.sleep(PACE)
            now[0] = self.epoch * STEPS + batch
            if not on_torch:  # a step is compiled: what is queued before it holds it up
                fault.at("first")
                fault.at("step", now[0])

        def on_train_batch_end(self, batch, logs=None):
            fault.at("callback", now[0])
            if fault.place == "callback":
                fault.accelerator.synchronize()

        def on_test_batch_begin(self, batch, logs=None):
            fault.at("validation", self.epoch)

        def on_epoch_end(self, epoch, logs=None):
            fault.at("save", epoch)
            self.model.save_weights("saved.weights.h5")  # waits: save

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            fault.starve(index)
            part = slice(index * ROWS, index * ROWS + ROWS)
            return x[part], y[part]

    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((WIDTH,)), Device(), dense(256, "tanh"), dense(256, "tanh"), dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile="auto")
    train = (Batches(workers=1),) if fault.name == "loader" else (x, y)
    how = {} if fault.name == "loader" else {"batch_size": ROWS}
    model.fit(  # waits: step first validation streams host save/keras-jax
        *train, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[Places()],
        validation_data=(x[: 5 * ROWS], y[: 5 * ROWS]), **how,
    )  # fmt: skip
    trained(model.get_weights())


# ---- JAX


def by_jax():
    import jax
    import numpy as np

    try:
        import stallguard
    except ImportError:
        stallguard = None
    fault.use(OfJax(fault.cuda))
    x, y = data()
    sizes, keys = (WIDTH, 256, 256, 1), jax.random.split(jax.random.key(5), 3)
    weights = [jax.random.normal(k, (a, b)) * a**-0.5 for k, a, b in zip(keys, sizes, sizes[1:])]

    def loss(weights, x, y):
        for weight in weights[:-1]:
            x = jax.numpy.tanh(x @ weight)
        return jax.numpy.square(x @ weights[-1] - y).mean()

    evaluate = jax.jit(loss)

    @jax.jit
    def update(weights, x, y):
        value, slopes = jax.value_and_grad(loss)(weights, x, y)
        return [weight - 0.05 * slope for weight, slope in zip(weights, slopes)], value

    def step(x, y, number):
        nonlocal weights
        fault.at("first")
        fault.at("step", number)
        after, value = update(weights, x, y)  # waits: step first host
        result = float(value)  # waits: step first host
        weights = after
        return result

    def callback(number):
        fault.at("callback", number)
        fault.accelerator.synchronize()

    def validate(epoch):
        fault.at("validation", epoch)
        return float(evaluate(weights, x[: 5 * ROWS], y[: 5 * ROWS]))  # waits: validation

    def save(epoch):
        fault.at("save", epoch)
        # What is queued holds up what is computed after it, no copy of what is there.
        np.savez("saved.npz", *[np.asarray(weight * 1.0) for weight in weights])  # waits: save

    for number in range(EPOCHS * STEPS):
        part = slice(number % STEPS * ROWS, number % STEPS * ROWS + ROWS)
        time.sleep(PACE)
        tried(step, x[part], y[part], number)
        callback(number)
        if stallguard is not None and PLAN["framework"] == "jax":
            stallguard.beat()
        if number % STEPS == STEPS - 1:
            validate(number // STEPS)
            save(number // STEPS)
    trained([np.asarray(weight) for weight in weights])


LOOPS = {
    "torch": by_torch, "trainer": by_trainer, "lightning": by_lightning, "keras-torch": by_keras,
    "keras-jax": by_keras, "jax": by_jax, "jax-silent": by_jax,
}  # fmt: skip

if __name__ == "__main__":
    PLAN = json.loads(sys.argv[1])
    EPOCHS = PLAN["epochs"]
    if PLAN["framework"] == "surround":
        surround(PLAN)
    else:
        fault = Fault(PLAN)
        LOOPS[PLAN["framework"]]()

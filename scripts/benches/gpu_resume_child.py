"""A small deterministic training that can be killed at any instant: the child of the part `resume` of the bench `gpu`.

    gpu_resume_child.py KIND         keras-torch keras-jax torch jax trainer lightning

It prints a line of JSON when its process begins to train, with the step that it begins at, and one with digests of
all weights and of the optimizer at the end.  Keras is resumed by stallguard, the plain loops by the functions that they
give it, Trainer and Lightning from their own checkpoints, as their documents show.
"""

import glob
import hashlib
import json
import os
import sys
import time

import numpy as np

import stallguard

ROWS, BATCH, EPOCHS = 640, 16, 8
EPOCH = ROWS // BATCH  # steps
STEPS = EPOCH * EPOCHS
PAUSE = 0.02  # seconds that a step rests: there must be time for a kill
WIDE, DROPPED = 128, 0.2
DEVICE = os.environ["GPU_CHILD_DEVICE"]
random = np.random.default_rng(3)
inputs = random.normal(size=(ROWS, 8)).astype("float32")
targets = (inputs[:, :1] ** 2 + 0.1 * random.normal(size=(ROWS, 1))).astype("float32")


class Progress:
    """Prints the first step of this process.  A resume restores `pid` too, so that of another process is no sign."""

    def __init__(self):
        self.pid = 0

    def step(self, number):
        if self.pid != os.getpid():
            self.pid = os.getpid()
            print(json.dumps({"pid": self.pid, "first": int(number)}), flush=True)
        time.sleep(PAUSE)


def finish(weights, optimizer):
    digests = [hashlib.sha256(b"".join(map(as_bytes, values))).hexdigest()[:24] for values in (weights, optimizer)]
    print(json.dumps({"pid": os.getpid(), "weights": digests[0], "optimizer": digests[1]}), flush=True)


def as_bytes(value):
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value).tobytes()


def numbers_of(optimizer):
    """Return the tensors of a torch optimizer."""
    return [value for state in optimizer.state_dict()["state"].values() for value in state.values()]


def of_keras():
    import keras

    keras.utils.set_random_seed(5)
    progress = Progress()

    class Showing(keras.callbacks.Callback):
        epoch = 0

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_begin(self, batch, logs=None):
            progress.step(self.epoch * EPOCH + batch)

    layers = [keras.layers.Dense(WIDE, activation="relu"), keras.layers.Dropout(DROPPED), keras.layers.Dense(1)]
    model = keras.Sequential([keras.layers.Input((8,)), *layers])
    model.compile("adam", "mse")
    model.fit(inputs, targets, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[Showing()])
    finish(model.get_weights(), model.optimizer.variables)


def network(dropped=DROPPED):
    import torch

    torch.manual_seed(5)
    layers = [torch.nn.Linear(8, WIDE), torch.nn.ReLU(), torch.nn.Dropout(dropped), torch.nn.Linear(WIDE, 1)]
    return torch.nn.Sequential(*layers)


def of_torch():
    import torch

    model = network().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x, y = (torch.from_numpy(one).to(DEVICE) for one in (inputs, targets))
    at = {"step": 0}

    def save(path):
        random = [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": random, "at": at}
        torch.save(state, path)

    def load(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        at.update(state["at"])
        torch.set_rng_state(state["random"][0])
        torch.cuda.set_rng_state_all(state["random"][1:])

    stallguard.checkpoint(save, load)
    progress = Progress()
    while at["step"] < STEPS:
        epoch, batch = divmod(at["step"], EPOCH)
        progress.step(at["step"])
        order = np.random.default_rng(epoch).permutation(ROWS)[batch * BATCH : (batch + 1) * BATCH]
        optimizer.zero_grad()
        loss = ((model(x[order]) - y[order]) ** 2).mean()
        loss.backward()
        optimizer.step()
        at["step"] += 1
        stallguard.beat()
    finish(model.parameters(), numbers_of(optimizer))


def of_jax():
    import jax
    import jax.numpy as jnp

    def loss_of(weights, x, y, key):
        hidden = jax.nn.relu(x @ weights["in"])
        hidden = jnp.where(jax.random.bernoulli(key, 1 - DROPPED, hidden.shape), hidden / (1 - DROPPED), 0)
        return ((hidden @ weights["out"] - y) ** 2).mean()

    @jax.jit
    def train(weights, speeds, x, y, key):
        slopes = jax.grad(loss_of)(weights, x, y, key)
        speeds = {name: 0.9 * speeds[name] + slopes[name] for name in weights}
        return {name: weights[name] - 1e-3 * speeds[name] for name in weights}, speeds

    first = np.random.default_rng(5)
    weights = {"in": first.normal(0, 0.3, (8, WIDE)), "out": first.normal(0, 0.1, (WIDE, 1))}
    weights = {name: jnp.asarray(one, "float32") for name, one in weights.items()}
    state = {"weights": weights, "speeds": {name: jnp.zeros_like(one) for name, one in weights.items()}, "step": 0}

    def save(path):
        values = {f"{kind} {name}": state[kind][name] for kind in ("weights", "speeds") for name in weights}
        with open(path, "wb") as file:
            np.savez(file, step=state["step"], **values)

    def load(path):
        with np.load(path) as kept:
            state["step"] = int(kept["step"])
            for kind in ("weights", "speeds"):
                state[kind] = {name: jnp.asarray(kept[f"{kind} {name}"]) for name in weights}

    stallguard.checkpoint(save, load)
    progress = Progress()
    while state["step"] < STEPS:
        epoch, batch = divmod(state["step"], EPOCH)
        progress.step(state["step"])
        order = np.random.default_rng(epoch).permutation(ROWS)[batch * BATCH : (batch + 1) * BATCH]
        key = jax.random.fold_in(jax.random.key(7), state["step"])
        state["weights"], state["speeds"] = train(state["weights"], state["speeds"], inputs[order], targets[order], key)
        state["step"] += 1
        stallguard.beat()
    finish(state["weights"].values(), state["speeds"].values())


def of_trainer():
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = network()

        def forward(self, x, y):
            return {"loss": ((self.layers(x) - y) ** 2).mean()}

    class Showing(TrainerCallback):
        progress = Progress()

        def on_step_begin(self, args, state, control, **kwargs):
            self.progress.step(state.global_step)

    arguments = TrainingArguments(
        "trainer", max_steps=STEPS, per_device_train_batch_size=BATCH, save_steps=EPOCH, save_total_limit=2, seed=5,
        report_to=[], disable_tqdm=True, logging_strategy="no", use_cpu=DEVICE == "cpu", label_names=["y"],
        remove_unused_columns=False,
    )  # fmt: skip
    rows = [{"x": torch.from_numpy(x), "y": torch.from_numpy(y)} for x, y in zip(inputs, targets)]
    trainer = Trainer(Model(), arguments, train_dataset=rows, callbacks=[Showing()])
    # Its state is the last file of a checkpoint: one that a kill left without it is no checkpoint.
    whole = [os.path.dirname(path) for path in glob.glob("trainer/checkpoint-*/trainer_state.json") if is_json(path)]
    newest = max(whole, key=lambda path: int(path.rpartition("-")[2]), default=None)
    trainer.train(resume_from_checkpoint=newest)
    finish(trainer.model.parameters(), numbers_of(trainer.optimizer))


def is_json(path):
    with open(path) as file:
        try:
            json.load(file)
        except ValueError:
            return False
    return True


def of_lightning():
    import torch

    try:
        import lightning.pytorch as lightning
    except ImportError:
        import pytorch_lightning as lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = network(0.0)  # Lightning does not keep the state of random generators
            self.progress = Progress()

        def training_step(self, batch, index):
            self.progress.step(self.global_step)
            x, y = batch
            return ((self.layers(x) - y) ** 2).mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-3)

    saving = lightning.callbacks.ModelCheckpoint("lightning", save_last=True, save_top_k=1)
    trainer = lightning.Trainer(
        accelerator="gpu" if DEVICE == "cuda" else "cpu", devices=1, max_epochs=EPOCHS, logger=False,
        callbacks=[saving], enable_progress_bar=False, enable_model_summary=False, deterministic=True,
    )  # fmt: skip
    rows = torch.utils.data.TensorDataset(torch.from_numpy(inputs), torch.from_numpy(targets))
    model = Model()
    trainer.fit(
        model, torch.utils.data.DataLoader(rows, BATCH),
        ckpt_path="lightning/last.ckpt" if os.path.exists("lightning/last.ckpt") else None,
    )  # fmt: skip
    finish(model.parameters(), numbers_of(trainer.optimizers[0]))


KINDS = {
    "keras-torch": of_keras, "keras-jax": of_keras, "torch": of_torch, "jax": of_jax, "trainer": of_trainer,
    "lightning": of_lightning,
}  # fmt: skip

if __name__ == "__main__":
    if "jax" not in sys.argv[1]:
        import torch

        torch.use_deterministic_algorithms(True)
    KINDS[sys.argv[1]]()

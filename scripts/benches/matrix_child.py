"""The training of one cell of the bench `matrix`: a loop in which one thing happens, at one place, so often.

    matrix_child.py PLAN      PLAN: JSON with loop, what, where, again, folder, output

It knows nothing of stallguard, except the loop "beat", which counts its batches itself.  In `folder` it keeps how often
it happened, and when, for the next attempt and for the bench.  Python 3.9 grammar.
"""

import atexit
import json
import os
import sys
import time

from matrix_trouble_child import BATCHES, EPOCHS, ROWS, SLOW, WIDTH, Trouble


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
            with (trouble.folder / "lines").open("a") as file:
                print(trouble.position[0], batch, file=file)
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
    history = model.fit(
        *data, **how, epochs=EPOCHS, shuffle=False, verbose=2 if PRINTS else 0, callbacks=[Places()],
        validation_data=(x[:ROWS], y[:ROWS, :1]) if trouble.where == "validation" else None,
    ).history  # fmt: skip
    return float(sum(np.abs(weight).sum() for weight in model.get_weights()) + sum(history["loss"]))


def by_hand(trouble, step, validate=None, kept=(), data=range(BATCHES)):
    """Run a loop of the script's own; `step(batch)` trains one of `data`, the batches of an epoch.

    `kept`: what it hands over, if it does.
    """
    trouble.at("start")
    epochs = ((epoch, enumerate(data)) for epoch in range(EPOCHS))
    if LOOP.startswith(("track-", "mean-")):
        try:
            import stallguard

            words = {"loss": "mean"} if LOOP.startswith("mean-") else {}
            epochs = stallguard.track(*kept, data, epochs=EPOCHS, **words)
        except ImportError:  # the undisturbed run
            pass
    for epoch, batches in epochs:
        for number, batch in batches:
            trouble.trains(epoch, number)
            trouble.at("input")
            step(batch)
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
    data = list(torch.rand(BATCHES, ROWS, WIDTH))
    optimizer, backward = torch.optim.SGD(model.parameters(), 0.01), torch.Tensor.backward
    if LOOP == "mean-accelerate":
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        model, optimizer = accelerator.prepare(model, optimizer)
        backward = accelerator.backward

    def train(x):
        optimizer.zero_grad()
        backward(model(x).square().mean())
        optimizer.step()

    by_hand(trouble, train, kept=(model, optimizer), data=data)
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
    data = list(mx.random.uniform(shape=(BATCHES, ROWS, WIDTH)))
    gradient = nn.value_and_grad(model, lambda model, x: model(x).square().mean())

    def train(x):
        loss, slopes = gradient(model, x)
        optimizer.update(model, slopes)
        mx.eval(loss, model.parameters(), optimizer.state)

    by_hand(trouble, train, kept=(model, optimizer), data=data)
    return float(sum(one.abs().sum().item() for _, one in tree_flatten(model.parameters())))


def mlx_lm_train(trouble):
    os.environ["MLX_DISABLE_COMPILE"] = "1"  # else Python runs in the first step alone
    import mlx.core as mx
    import numpy as np
    from mlx import optimizers
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama
    from mlx_lm.tuner import trainer

    trouble.at("import")
    mx.random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the trainer shuffles with it
    drawn = [0]

    def batches(*args, **named):
        for batch in trainer.iterate_batches(*args, **named):
            if named.get("loop"):
                drawn[0] += 1
                trouble.at("input")
            yield batch

    def loss(model, batch, lengths):
        if not model.training:
            trouble.at("validation")
            return trainer.default_loss(model, batch, lengths)
        trouble.trains(*divmod(drawn[0] - 1, BATCHES))
        factor = passes(trouble, mx.ones((len(batch), 1))).mean()
        value, tokens = trainer.default_loss(model, batch, lengths)
        return value * factor, tokens

    class Places:
        def on_train_loss_report(self, report):
            trouble.at("callback")

        def on_val_loss_report(self, report):
            trouble.at("epoch-end")

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 32, "num_attention_heads": 2}
    more = {"rms_norm_eps": 1e-5, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = llama.Model(llama.ModelArgs(model_type="llama", **sizes, **more))
    rows = [([(3 * row + at) % 64 for at in range(8 + row % 20)], 0) for row in range(ROWS * BATCHES)]
    settings = trainer.TrainingArgs(
        batch_size=ROWS, iters=BATCHES * EPOCHS, val_batches=1, steps_per_report=1, steps_per_eval=BATCHES,
        steps_per_save=1000, adapter_file=str(trouble.folder / "adapters.safetensors"),
    )  # fmt: skip
    trouble.at("start")
    trainer.train(model, optimizers.SGD(0.01), rows, rows[:ROWS], settings, loss, batches, Places())
    return float(sum(one.abs().sum().item() for _, one in tree_flatten(model.parameters())))


def jax_loop(trouble):
    import jax
    import numpy as np
    import optax

    trouble.at("import")
    optimizer = optax.sgd(0.01)

    def called(x):
        return np.asarray(passes(trouble, np.asarray(x)), x.dtype)

    def loss_of(weights, x):
        return ((x @ weights) ** 2).mean()

    @jax.jit
    def train(weights, state, x):
        trouble.at("tracing")
        x = jax.pure_callback(called, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        loss, slopes = jax.value_and_grad(loss_of)(weights, x)
        updates, state = optimizer.update(slopes, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    data = list(np.random.default_rng(1).random((BATCHES, ROWS, WIDTH)).astype("float32"))
    weights = jax.numpy.ones((WIDTH, 1))
    now = [weights, optimizer.init(weights)]

    def step(x):
        now[0], now[1], loss = train(*now, x)
        float(loss)

    by_hand(trouble, step, data=data)
    return float(abs(now[0]).sum())


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
    "mean-accelerate": torch_loop, "mean-mlx": mlx_loop, "mlx-lm": mlx_lm_train, "jax": jax_loop,
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

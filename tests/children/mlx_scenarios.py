"""Trains with MLX in the ways that its users do; prints what the probe counted each time, as JSON."""

import json
import sys
import time
from functools import partial

import mlx.core as mx
import mlx.optimizers as optim
import numpy as np
from mlx import nn
from mlx.utils import tree_map

PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
COUNTERS = ("beats", "checks", "saves", "micro")


class Net(nn.Module):
    """Two layers, dropout, and an activation that MLX itself compiles."""

    def __init__(self):
        """Make the layers."""
        super().__init__()
        self.layers = [nn.Linear(16, 32), nn.Dropout(0.1), nn.Linear(32, 1)]

    def __call__(self, x):
        """Return the output."""
        first, dropout, last = self.layers
        return last(dropout(nn.silu(first(x))))


def parts(optimizer=None):
    """Return a model, an optimizer, data, and the function of loss and gradients, always the same."""
    mx.random.seed(0)
    net = Net()
    x = mx.random.normal((32, 16))
    mx.eval(net.parameters(), x)
    graded = nn.value_and_grad(net, lambda net, x, y: nn.losses.mse_loss(net(x), y))
    return net, optimizer or optim.Adam(1e-2), x, x[:, :1], graded


def eager():
    net, optimizer, x, y, graded = parts()
    losses = []
    for _ in range(20):
        loss, grads = graded(net, x, y)
        optimizer.update(net, grads)
        mx.eval(net.parameters(), optimizer.state, loss)
        losses.append(loss.item())
    return losses


def applied():
    """Apply gradients by hand, and evaluate by reading the loss; one optimizer for each half of the model."""
    first = optim.Muon(1e-2)
    net, optimizer, x, y, graded = parts(optim.MultiOptimizer([first, optim.SGD(1e-2)], [lambda _, w: w.ndim == 2]))
    losses = []
    for _ in range(20):
        loss, grads = graded(net, x, y)
        net.update(optimizer.apply_gradients(grads, net))
        losses.append(loss.item())
    return losses


def compiled():
    """Compile the whole step with its state; each fourth time validate with a compiled function too."""
    net, optimizer, x, y, graded = parts()
    state = [net.state, optimizer.state, mx.random.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(x, y):
        loss, grads = graded(net, x, y)
        optimizer.update(net, grads)
        return loss

    @partial(mx.compile, inputs=net.state)
    def error(x, y):
        return nn.losses.mse_loss(net(x), y)

    losses = []
    for at in range(20):
        loss = step(x, y)
        mx.eval(state, loss)
        losses.append(loss.item())
        if at % 4 == 3:
            net.eval()
            losses += [error(x, y).item() for _ in range(3)]
            net.train()
    return losses


def of_other_shapes():
    """A compiled step that is traced anew, because the last batch is smaller."""
    net, optimizer, x, y, graded = parts()
    state = [net.state, optimizer.state, mx.random.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(x, y):
        loss, grads = graded(net, x, y)
        optimizer.update(net, grads)
        return {"loss": loss}

    for at in range(20):
        rows = 10 if at % 5 == 4 else 32
        mx.eval(step(x[:rows], y[:rows]), state)


def accumulated():
    """20 updates of 4 slices each."""
    net, optimizer, x, y, graded = parts()
    for _ in range(20):
        total = None
        for at in range(4):
            _, grads = graded(net, x[8 * at : 8 * at + 8], y[8 * at : 8 * at + 8])
            total = grads if total is None else tree_map(lambda a, b: a + b, total, grads)
            mx.eval(total)
        optimizer.update(net, tree_map(lambda one: one / 4, total))
        mx.eval(net.state, optimizer.state)


def compiled_accumulated():
    """The same in a compiled step with an argument that says whether to update, as in mlx-lm."""
    net, optimizer, x, y, graded = parts()
    state = [net.state, optimizer.state, mx.random.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(x, y, before, update):
        loss, grads = graded(net, x, y)
        if before is not None:
            grads = tree_map(lambda a, b: a + b, grads, before)
        if update:
            optimizer.update(net, grads)
            grads = None
        return loss, grads

    grads, losses = None, []
    for at in range(80):
        loss, grads = step(x, y, grads, at % 4 == 3)
        mx.eval(state, loss, grads)
        losses.append(loss.item())
    return losses


def compiled_gradients():
    """Compile the gradients, and update outside."""
    net, optimizer, x, y, graded = parts()
    state = [net.state, mx.random.state]
    gradients = mx.compile(lambda x, y: graded(net, x, y), inputs=state, outputs=state)
    losses = []
    for _ in range(20):
        loss, grads = gradients(x, y)
        optimizer.update(net, grads)
        mx.eval(net.state, optimizer.state)
        losses.append(loss.item())
    return losses


def evaluated():
    """No training: validation, with mx.eval for each batch."""
    net, _, x, y, _ = parts()
    net.eval()
    for _ in range(20):
        mx.eval(nn.losses.mse_loss(net(x), y))


def validated():
    """5 batches, and validation of 7."""
    net, optimizer, x, y, graded = parts()
    for _ in range(5):
        _, grads = graded(net, x, y)
        optimizer.update(net, grads)
        mx.eval(net.state, optimizer.state)
    net.eval()
    for _ in range(7):
        mx.eval(nn.losses.mse_loss(net(x), y))
    net.train()
    mx.save_safetensors("weights.safetensors", {"x": x})


def broken():
    """A compiled step whose loss is not a number from batch 11 on; one in 50 ms is looked at."""
    net, optimizer, x, y, graded = parts()
    state = [net.state, optimizer.state, mx.random.state]

    @partial(mx.compile, inputs=state, outputs=state)
    def step(x, y):
        loss, grads = graded(net, x, y)
        optimizer.update(net, grads)
        return loss, x.sum()

    for at in range(20):
        time.sleep(0.06)
        loss, _ = step(x * (float("nan") if at >= 10 else 1.0), y)
        mx.eval(state, loss)


def language(**settings):
    """Return the losses of mlx-lm's trainer with LoRA on a small model."""
    from mlx_lm.models import llama
    from mlx_lm.tuner.trainer import TrainingArgs, train
    from mlx_lm.tuner.utils import linear_to_lora_layers

    mx.random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the trainer shuffles with it
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 2}
    more = {"rms_norm_eps": 1e-5, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = llama.Model(llama.ModelArgs(model_type="llama", **sizes, **more))
    model.freeze()
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 10.0, "dropout": 0.0})
    mx.eval(model.parameters())
    rows = [([(3 * row + at) % 64 for at in range(24)], 0) for row in range(32)]
    heard = []

    class Heard:
        def on_train_loss_report(self, report):
            heard.append(report["train_loss"])

        def on_val_loss_report(self, report):
            heard.append(report["val_loss"])

    made = TrainingArgs(
        batch_size=4, iters=20, val_batches=2, steps_per_report=5, steps_per_eval=10, steps_per_save=10, **settings
    )
    train(model, optim.Adam(1e-3), rows, rows[:8], args=made, training_callback=Heard())
    return heard


def lora():
    return language()


def lora_accumulated():
    return language(grad_accumulation_steps=4)


def counters():
    """Return the record's counters, all zero without the probe."""
    return [PROBE.context.get(name) if PROBE else 0 for name in COUNTERS]


def run(scenario):
    """Run one scenario and return what grew."""
    before = counters()
    result = scenario()
    grown = {name: b - a for name, a, b in zip(COUNTERS, before, counters())}  # noqa: B905 - Python 3.9
    grown["source"] = PROBE.context.get("source") if PROBE else 0
    grown["result"] = [float(one).hex() for one in result or ()]
    return grown


if __name__ == "__main__":
    print(json.dumps({name: run(globals()[name]) for name in sys.argv[1:]}))

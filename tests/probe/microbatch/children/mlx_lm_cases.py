# ruff: noqa: NPY002  the trainer shuffles with the global generator
"""Trains small language models with mlx-lm's trainer, and writes a line of JSON for each into the file `trained`.

    mlx_lm_cases.py CASE...     a case is words: full, accumulation=2, batch=8, half, masked, own, loss=rows ...

`limit=NUMBERS`: a step that gets more numbers in a batch runs out of memory.  `peak`: the most memory of MLX in a step.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.tuner import trainer
from mlx_lm.tuner.utils import linear_to_lora_layers

OUT_OF_MEMORY = (
    "[metal::malloc] Attempting to allocate 21474836480 bytes which is greater than the maximum allowed buffer size of "
    "9534832640 bytes."
)


class Normalised(nn.Module):
    """The model with batch normalisation of its outputs."""

    def __init__(self, model):
        super().__init__()
        self.model, self.norm = model, nn.BatchNorm(64)

    def __call__(self, inputs):
        return self.norm(self.model(inputs))


class Counting(nn.Module):
    """The model with an array that each call changes."""

    def __init__(self, model):
        super().__init__()
        self.model, self.calls = model, mx.zeros(1)
        self.freeze(keys=["calls"], recurse=False)

    def __call__(self, inputs):
        if self.training:
            self.calls = self.calls + 1
        return self.model(inputs)


def rows_loss(model, batch, lengths):
    """Return the mean over rows of each row's mean."""
    positions = mx.arange(1, batch.shape[1])
    mask = (positions >= lengths[:, :1]) & (positions <= lengths[:, 1:])
    losses = nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:]) * mask
    return (losses.sum(1) / mask.sum(1)).mean(), mask.sum()


def pairs_loss(model, batch, lengths):
    """Return a loss that compares the rows of a batch."""
    mean, tokens = trainer.default_loss(model, batch, lengths)
    seen = model(batch[:, :-1]).mean(1)
    return mean + ((seen[:, None] - seen[None]) ** 2).mean(), tokens


LOSSES = {"tokens": trainer.default_loss, "rows": rows_loss, "pairs": pairs_loss}


class Reports:
    """What the trainer reports."""

    def __init__(self):
        self.seen = []

    def on_train_loss_report(self, report):
        self.seen.append([report["train_loss"], report["trained_tokens"], report["learning_rate"]])

    def on_val_loss_report(self, report):
        self.seen.append([report["val_loss"]])


def trained(case):
    """Train one case; return what it came to."""
    words = dict((*word.split("="), "")[:2] for word in case.split(","))

    def given(name, default):
        return int(words.get(name, default))

    mx.random.seed(3)
    np.random.seed(given("seed", 4))
    width, length = given("width", 16), given("length", 40)
    sizes = {"hidden_size": width, "num_hidden_layers": 2, "intermediate_size": 2 * width, "num_attention_heads": 2}
    more = {"rms_norm_eps": 1e-5, "vocab_size": 64, "num_key_value_heads": 2, "tie_word_embeddings": True}
    model = llama.Model(llama.ModelArgs(model_type="llama", **sizes, **more))
    if "full" not in words:
        model.freeze()
        linear_to_lora_layers(model, 2, {"rank": 4, "scale": 2.0, "dropout": 0.2 if "dropout" in words else 0.0})
    model = Normalised(model) if "normalised" in words else Counting(model) if "counting" in words else model
    if "half" in words:
        model.set_dtype(mx.bfloat16)
    mx.eval(model.parameters())
    texts = [[(3 * row + at) % 64 for at in range(8 + row % length)] for row in range(44)]
    rows = [(text, 4 + row % 40 if "masked" in words and row % 3 == 0 else 2) for row, text in enumerate(texts)]
    if "empty" in words:  # a mask of the prompt that leaves nothing of a row that is cut off
        rows = [(one, len(one) + 8) if place % 2 else (one, 2) for place, (one, _) in enumerate(rows)]
    if "long" in words:
        rows = [([(3 * row + at) % 64 for at in range(length - row % 8)], 0) for row in range(44)]

    def loss(model, *batch):
        if model.training and batch[0].size > given("limit", 1 << 40):
            raise RuntimeError(OUT_OF_MEMORY)
        return LOSSES[words.get("loss", "tokens")](model, *batch[:2])

    def batches(*args, **named):
        for batch in trainer.iterate_batches(*args, **named):
            if named.get("loop"):
                begun.append(1)
            yield (*batch, batch[0] * 2) if "own" in words else (*batch, mx.array(3)) if "scalar" in words else batch

    begun, reports = [], Reports()
    optimizer = optimizers.AdamW(optimizers.cosine_decay(1e-2, 100), eps=1e-2)
    settings = trainer.TrainingArgs(
        batch_size=given("batch", 4), iters=given("iters", 12), val_batches=2, steps_per_report=5, steps_per_eval=100,
        steps_per_save=100, adapter_file="adapters.safetensors", grad_accumulation_steps=given("accumulation", 1),
    )  # fmt: skip
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    trainer.train(model, optimizer, rows, rows[: given("batch", 4)], settings, loss, batches, reports)
    weights = [one for _, value in sorted(tree_flatten(model.trainable_parameters()))
               for one in value.astype(mx.float32).flatten().tolist()]  # fmt: skip
    return {"case": case, "steps": int(optimizer.state["step"].item()), "begun": len(begun), "weights": weights[:4000],
            "reports": reports.seen, "peak": mx.get_peak_memory() - before}  # fmt: skip


with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):  # it is more than fits a pipe
    for case in sys.argv[1:]:
        line = json.dumps(trained(case))
        with Path("trained").open("a") as file:
            file.write(line + "\n")

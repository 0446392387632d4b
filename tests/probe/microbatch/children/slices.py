"""Trains models that slices suit, and models that they do not, whole and with slices asked for, in one process.

    slices.py CASE...     one line of JSON: {case: [the whole batch, slices]}

Of each training: a digest of the weights, sums over them, the logs, what the script's own attributes and generators
were at the end, and what the probe said.
"""

import hashlib
import json
import random
import sys

import numpy as np
from slice_batches import (
    anchors,
    attention,
    busy,
    edges_by_chance,
    fixed,
    graph_of_nodes,
    growing_table,
    half,
    masked_outputs,
    mirrored,
    mixed_parts,
    optimized,
    own_loop,
    own_step,
    pipeline,
    second_data,
    second_fit,
    single_batches,
    sizes,
    sorted_targets,
    temperature,
)
from slice_shapes import (
    BACKEND,
    CONTEXT,
    FACTOR,
    KERAS3,
    SAID,
    Counts,
    Jitter,
    KeptJitter,
    Sampled,
    Spread,
    Thrifty,
    adding,
    average_of_the_guide,
    both,
    contrast,
    dense,
    fitted,
    keras,
    labels,
    layers,
    losses,
    mean,
    network,
    probe,
    r2,
    smooth,
    squeezes,
    stateful,
    total,
    x,
    y,
)

if BACKEND == "tensorflow":
    import tensorflow as tf


def cases():
    """Return {name: train it}."""
    o = keras.optimizers
    found = {
        "mse": both(dense),
        "weighted": lambda: fitted(network(dense()), x, y, sample_weight=x[:, 1]),
        "loss_sum": both(dense, loss=losses.MeanSquaredError(reduction="sum"), rate=0.003),
        "loss_none": both(dense, loss=losses.MeanSquaredError(reduction="none"), rate=0.003),
        "scalar_mean": both(dense, loss=mean),
        "huber": both(dense, loss=losses.Huber()),
        "ignored_class": lambda: fitted(network(dense(), last=3, activation="softmax",
                                                loss=losses.SparseCategoricalCrossentropy(ignore_class=0)), x, labels),
        "classes": lambda: fitted(network(dense(), last=3, activation="softmax", loss="sparse_categorical_crossentropy",
                                          metrics=["accuracy"]), x, labels),
        "add_mean": both(dense, adding("mean", 0.1)),
        "scalar_sum": both(dense, loss=total, rate=0.003),
        "contrast": lambda: fitted(network(dense(), last=4, loss=contrast), x, np.repeat(y, 4, 1)),
        "neighbours": both(dense, loss=smooth),
        "masked_by_hand": sorted_targets,
        "masked_outputs": masked_outputs,
        "add_sum": both(dense, adding("sum", 0.1), rate=0.003),
        "add_little": both(dense, adding("sum", 1e-3)),
        "noise": both(dense, lambda: layers.GaussianNoise(0.2)),
        "gaussian_dropout": both(dense, lambda: layers.GaussianDropout(0.2)),
        "dropout": both(dense, lambda: layers.Dropout(0.2)),
        "sampled": both(dense, Sampled),
        "normalised": both(dense, layers.BatchNormalization),
        "layer_norm": both(dense, layers.LayerNormalization),
        "spread": both(dense, Spread),
        "counts": both(Counts, dense),
        "stateful": stateful,
        "score": both(dense, metrics=[r2]),
        "busy": busy,
        "busy_eager": lambda: busy(run_eagerly=True),
        "second_fit": second_fit,
        "train_on_batch": lambda: single_batches("mse"),
        "train_on_batch_sum": lambda: single_batches(total),
        "one_row": sizes(6, 1),
        "two_rows": sizes(6, 2),
        "last_of_one": sizes(33, 16),
        "last_of_three": sizes(35, 16),
        "momentum": optimized(lambda: o.SGD(0.05, momentum=0.9, nesterov=True)),
        "adamw": optimized(lambda: o.AdamW(0.01, clipnorm=0.1)),
        "averaged": optimized(lambda: o.Adam(use_ema=True, ema_overwrite_frequency=2)),
        "bfloat16": half("mixed_bfloat16"),
        "float16": half("mixed_float16"),
    }  # fmt: skip
    if KERAS3:
        found |= {
            "dice": lambda: fitted(network(dense(), activation="sigmoid", loss=losses.Dice(), rate=0.5),
                                   x, (y > 0.5).astype("float32")),
            "spectral": both(lambda: layers.SpectralNormalization(dense())),
            "accumulated": optimized(lambda: o.Adam(gradient_accumulation_steps=2)),
            "squeezes": lambda: fitted(network(dense(), loss=squeezes), x, y, batch_size=15),
            "attention": lambda: fitted(attention(), x.reshape(48, 3, 2), y),
        }  # fmt: skip
    if BACKEND == "tensorflow":
        found |= {
            "average_of_the_guide": average_of_the_guide,
            "tf_noise": both(dense, Jitter),
            "kept_noise": both(dense, KeptJitter),
            "fixed": fixed,
            "fails_in_a_graph": lambda: fitted(network(Thrifty(), dense()), pipeline(drop=True)),
            "anchors": lambda: anchors(lambda _: tf.constant(np.resize(x, (100, 6)))),
            "anchors_by_chance": lambda: anchors(growing_table),
            "temperature": temperature,
            "graph": graph_of_nodes,
            "edges_by_chance": edges_by_chance,
            "mixed_parts": mixed_parts,
            "mirrored": mirrored,
            "second_data": second_data,
            "own_loop": own_loop,
            "own_step": lambda: own_step("mse"),
            "own_step_eager": lambda: own_step("mse", run_eagerly=True),
            "own_step_sum": lambda: own_step(total, run_eagerly=True),
            "compiled_step": lambda: own_step("mse", compiled=True),
            "reading_step": lambda: own_step("mse", reads=True),
            "compiled": both(dense, jit_compile=True),
            "compiled_sum": both(dense, jit_compile=True, loss=total, rate=0.003),
            "eager": both(dense, run_eagerly=True),
            "strides": both(dense, steps_per_execution=2),
            "strides_sum": both(dense, steps_per_execution=2, loss=total, rate=0.003),
        }  # fmt: skip
    return found


def updates(model):
    """Return how often the optimizer has updated."""
    count = model.optimizer.iterations
    count = getattr(count, "value", count) if KERAS3 else count
    return int(count.numpy() if hasattr(count, "numpy") else count)


def tried(train, factor):
    """Return what one training came to, or how it failed."""
    try:
        return measured(train, factor)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error)[:600]}", "said": list(SAID)}


def measured(train, factor):
    """Return what one training came to."""
    CONTEXT.settings = CONTEXT.settings.replace(slices=factor)
    keras.utils.set_random_seed(0)
    SAID.clear()
    surprises = probe.patches.surprises
    model, history = train()
    values = [np.asarray(value) for value in model.get_weights()]
    numbers = np.concatenate([np.ravel(value) for value in values]).astype("float64")
    return {
        "digest": hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in values)).hexdigest(),
        "logs": {name: [float(value) for value in found] for name, found in history.items()},
        "sum": float(np.abs(numbers).sum()),
        "squares": float((numbers**2).sum()),
        "updates": updates(model),
        "draws": [random.random(), float(np.random.rand())],  # noqa: NPY002  the generators that a seed of Keras sets
        "said": list(SAID),
        "surprises": probe.patches.surprises - surprises,
    }


if __name__ == "__main__":
    known = cases()
    names = list(known) if sys.argv[1:] == ["all"] else sys.argv[1:]
    print(json.dumps({name: [tried(known[name], 1), tried(known[name], FACTOR)] for name in names}))

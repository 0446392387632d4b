"""A loop of the script's own that says how it is saved and loaded."""

import harness
import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(7)
import json

import stallguard

x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.Adam(0.01)
optimizer.build(model.trainable_variables)
state = {"epoch": 0, "batch": 0, "losses": []}


def save(path):
    arrays = [value.numpy() for value in (*model.variables, *optimizer.variables)]
    np.savez(path, state=json.dumps(state), **{f"a{i:03}": array for i, array in enumerate(arrays)})


def load(path):
    with np.load(path + ".npz") as found:
        state.update(json.loads(str(found["state"])))
        for variable, name in zip(
            (*model.variables, *optimizer.variables), sorted(found.files)[:-1], strict=True
        ):
            variable.assign(found[name])


stallguard.checkpoint(save, load)
while state["epoch"] < 4:
    harness.epoch(state["epoch"])
    order = np.random.default_rng(state["epoch"]).permutation(120)
    while state["batch"] < 6:
        rows = order[state["batch"] * 20 : (state["batch"] + 1) * 20]
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x[rows]) - y[rows]) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        state["losses"].append(float(loss))
        state["batch"] += 1
        stallguard.beat()
        harness.batch(state["epoch"], state["batch"] - 1)
    state["epoch"], state["batch"] = state["epoch"] + 1, 0
harness.show("losses", state["losses"])
harness.model(model)
harness.variables(optimizer.variables, "optimizer")

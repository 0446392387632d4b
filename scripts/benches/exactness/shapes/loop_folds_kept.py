"""k-fold without a seed for each fold: models stay in a list, the best one is chosen."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
models, scores = [], []
for held_out in np.array_split(np.random.permutation(120), 4):
    train = np.setdiff1d(np.arange(120), held_out)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = model.fit(
        x[train],
        y[train],
        16,
        epochs=3,
        validation_data=(x[held_out], y[held_out]),
        callbacks=[
            keras.callbacks.EarlyStopping(patience=1, restore_best_weights=True),
            harness.callback(keras),
        ],
        verbose=0,
    )
    models.append(model)
    scores.append(min(history.history["val_loss"]))
harness.show("scores", scores)
harness.model(models[int(np.argmin(scores))])

"""Arrays with sample weights and a last batch that is smaller than the others."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
LEARNING_RATE = 0.02
x = np.random.rand(107, 6).astype("float32")
y = (x.sum(1) > 3).astype("float32")
weights = np.random.rand(107)
model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1, "sigmoid")])
model.compile(
    keras.optimizers.RMSprop(LEARNING_RATE), "binary_crossentropy", weighted_metrics=["accuracy", "auc"]
)
history = model.fit(x, y, 16, epochs=4, sample_weight=weights, callbacks=[harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)

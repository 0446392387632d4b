"""Population-based training: the better of two models is copied, its rate changed."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
models = []
for rate in (0.1, 0.001):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    models.append(model)
for turn in range(3):
    scores = []
    for model in models:
        model.fit(x, y, 20, epochs=1, callbacks=[harness.callback(keras)], verbose=0)
        scores.append(model.evaluate(x, y, verbose=0))
    good, bad = models[int(np.argmin(scores))], models[int(np.argmax(scores))]
    bad.set_weights(good.get_weights())
    bad.optimizer.learning_rate = float(good.optimizer.learning_rate) * float(np.random.choice([0.8, 1.2]))
    harness.show(f"scores {turn}", scores)
for number, model in enumerate(models):
    harness.model(model, f"model {number}")

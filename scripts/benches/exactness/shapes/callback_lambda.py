"""A LambdaCallback that closes over a local list, by which the learning rate is chosen."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)


def remembering(model):
    losses = []

    def ended(batch, logs):
        losses.append(logs["loss"])
        model.optimizer.learning_rate = 0.1 / (1 + len(losses) / 10)

    return keras.callbacks.LambdaCallback(on_train_batch_end=ended), losses


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
remember, losses = remembering(model)
callbacks = [remember]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
harness.show("losses", [float(loss) for loss in losses])

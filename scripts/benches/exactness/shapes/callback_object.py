"""A callback that keeps its state in a dataclass and an enumeration."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
x = np.random.rand(120, 6).astype("float32")
y = np.sin(x.sum(1, keepdims=True) * 3)
import dataclasses
import enum


class Stage(enum.Enum):
    WARM = "warm"
    MAIN = "main"


@dataclasses.dataclass
class State:
    steps: int = 0
    stage: Stage = Stage.WARM
    losses: list = dataclasses.field(default_factory=list)


class Stages(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.state = State()

    def on_train_batch_end(self, batch, logs=None):
        self.state.steps += 1
        self.state.losses.append(float(logs["loss"]))
        if self.state.steps >= 15:
            self.state.stage = Stage.MAIN
            self.model.optimizer.learning_rate = 0.01


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [Stages()]
history = model.fit(x, y, 20, epochs=5, callbacks=[*callbacks, harness.callback(keras)], verbose=0)
harness.history(history)
harness.model(model)
state = callbacks[0].state
harness.show("state", [state.steps, state.stage.value, state.losses])

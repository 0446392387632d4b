"""Scripts of the bench `exact` for other frameworks and older versions."""

from __future__ import annotations

from .shape import COMMENT, DEFAULTS, EPOCHS, HALVED, OPTIMIZER, RATE, SEGMENTS, Edit, row

SHAPES = (
    # Other frameworks
    row("keras2_arrays", HALVED, SEGMENTS, edit=Edit(COMMENT), text=r"""Keras 2: arrays with the usual callbacks.
%keras2
%sine
model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.05),
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True), keras.callbacks.CSVLogger("log.csv"),
    harness.callback(keras),
]
history = model.fit(x, y, 16, epochs=5, validation_split=0.2, callbacks=callbacks, verbose=0)
%shown
harness.file("log.csv")
"""),
    row("keras2_legacy", HALVED, text=r"""
Keras 2: a legacy optimizer, as Macs fall back to, and the scheduler of the documentation.
import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras
keras.utils.set_random_seed(7)
%sine
def scheduler(epoch, lr):
    return lr if epoch < 1 else lr * float(tf.math.exp(-0.1))
model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.legacy.Adam(0.01), "mse")
callbacks = [keras.callbacks.LearningRateScheduler(scheduler), harness.callback(keras)]
history = model.fit(x, y, 20, epochs=4, callbacks=callbacks, verbose=0)
harness.history(history)
harness.show("weights", model.get_weights())
harness.show("optimizer", model.optimizer.get_weights())
"""),
    row("keras2_pipeline", HALVED, edit=Edit(OPTIMIZER, '"adam"', '"rmsprop"'), text=r"""
Keras 2: a shuffled pipeline and a subclassed model with BatchNormalization.
import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras
keras.utils.set_random_seed(7)
%sine
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.norm = keras.layers.Dense(16, "tanh"), keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(1)
    def call(self, inputs, training=False):
        return self.out(self.norm(self.hidden(inputs), training=training))
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(120).batch(20).prefetch(1)
model = Net()
%then slow adam data, epochs=4
"""),
    row("keras2_images", text=r"""
Keras 2: an Iterator of images, as ImageDataGenerator has it: its order comes from a seed and a counter.
%keras2
images = np.random.rand(96, 8, 8, 3).astype("float32")
labels = np.random.randint(0, 2, 96).astype("float32")
class Flips(keras.preprocessing.image.Iterator):
    def _get_batches_of_transformed_samples(self, indices):
        flipped = np.random.random(len(indices)) < 0.5
        batch = images[indices]
        batch[flipped] = batch[flipped][:, :, ::-1]
        return batch, labels[indices]
layers = [keras.layers.Conv2D(4, 3, input_shape=(8, 8, 3)), keras.layers.GlobalAveragePooling2D()]
model = keras.Sequential([*layers, keras.layers.Dense(1)])
model.compile("adam", "mse")
data = Flips(len(images), 16, shuffle=True, seed=3)
%fit data, epochs=4
harness.show("seen", data.total_batches_seen)
"""),
    row("keras2_sequence", SEGMENTS, text=r"""
Keras 2: a Sequence that shuffles itself at an epoch's end, and an accumulator reset at its beginning.
%keras2
%sine
class Rows(keras.utils.Sequence):
    def __init__(self):
        self.order = np.arange(96)
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]
    def on_epoch_end(self):
        np.random.shuffle(self.order)
class Spread(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.losses = []
    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
    def on_epoch_end(self, epoch, logs=None):
        keras.backend.set_value(self.model.optimizer.learning_rate, float(np.std(self.losses)))
model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=[Spread(), harness.callback(keras)], verbose=0)
%shown
"""),
    row("keras2_step", at=(1, 1, 3), save=150, text=r"""Keras 2: a train_step with a counter, dropout, and two fits.
import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras
keras.utils.set_random_seed(7)
%sine
class Net(keras.Sequential):
    def train_step(self, data):
        self.step.assign_add(1.0)
        features, target = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(features, training=True) - target) ** 2) * tf.minimum(1.0, self.step / 20)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}
model = Net([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dropout(0.1), keras.layers.Dense(1)])
model.step = tf.Variable(0.0, trainable=False)
model.compile("adam")
first = model.fit(x, y, 20, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
history = model.fit(x, y, 20, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
harness.history(first, "first")
%shown
harness.show("step", float(model.step))
"""),
    row("keras2_folds", DEFAULTS, at=(2, 1, 3), save=200, text=r"""Keras 2: k-fold with a cleared session.
%keras2
%sine
for fold in range(4):
    keras.backend.clear_session()
    keras.utils.set_random_seed(fold)
    train = np.arange(120) % 4 != fold
    model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x[train], y[train], 15, epochs=2, callbacks=[harness.callback(keras)], verbose=0)
    harness.show(f"score {fold}", model.evaluate(x[~train], y[~train], verbose=0))
    harness.show(f"weights {fold}", model.get_weights())
"""),
    row("keras2_replica", HALVED, text=r"""Keras 2: a MirroredStrategy with one replica.
import harness
import numpy as np
import tensorflow as tf
from tensorflow import keras
keras.utils.set_random_seed(7)
%sine
with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
    model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
%fit x, y, 20, epochs=4
"""),
    row("tf_keras_arrays", HALVED, text=r"""tf_keras: arrays, early stopping, and the scheduler of the documentation.
import harness
import numpy as np
import tf_keras as keras
keras.utils.set_random_seed(7)
%sine
%scheduler
model = keras.Sequential([keras.layers.Dense(16, "tanh", input_shape=(6,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
callbacks = [
    keras.callbacks.LearningRateScheduler(scheduler), keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.EarlyStopping(monitor="loss", patience=2, restore_best_weights=True),
    harness.callback(keras),
]
history = model.fit(x, y, 20, epochs=5, callbacks=callbacks, verbose=0)
%shown
harness.file("log.csv")
"""),
    row("tf_keras_pipeline", text=r"""tf_keras: a pipeline with random operations in map, and a functional model.
import harness
import numpy as np
import tf_keras as keras
keras.utils.set_random_seed(7)
import tensorflow as tf
%sine
def augment(a, b):
    return a + tf.random.normal((6,), stddev=0.1), b
data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(60).map(augment).batch(20)
inputs = keras.Input((6,))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(16, "tanh")(inputs)))
model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse")
%fit data, epochs=4
"""),
    row("older_arrays", HALVED, text=r"""Keras 3 on an older TensorFlow: arrays, dropout, a validation split.
%rows
model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
%then slow adam x, y, 20, epochs=4, validation_split=0.2
"""),
    row("jax_arrays", HALVED, SEGMENTS, edit=Edit(RATE, "Adam(0.01)", "Adam(0.002)"), text=r"""
Keras 3 on JAX: arrays with the usual callbacks.
%usual arrays
"""),
    row("jax_sequence", edit=Edit(EPOCHS, "epochs=4", "epochs=6"), text=r"""
Keras 3 on JAX: a PyDataset that reorders itself, and the scheduler of the documentation.
%reordered rows
"""),
    row("jax_folds", DEFAULTS, at=(1, 1, 2), save=150, text=r"""
Keras 3 on JAX: two models of the same shape, one after the other.
%rows
for fold in range(3):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    model.fit(x[fold::3], y[fold::3], 10, epochs=3, callbacks=[harness.callback(keras)], verbose=0)
    harness.model(model, f"model {fold}")
"""),
    row("torch_arrays", HALVED, SEGMENTS, edit=Edit(COMMENT), text=r"""
Keras 3 on torch: arrays with the usual callbacks.
%usual arrays
"""),
    row("torch_sequence", text=r"""
Keras 3 on torch: a PyDataset that reorders itself, and the scheduler of the documentation.
%reordered rows
"""),
    row("torch_loader", text=r"""Keras 3 on torch: a DataLoader that shuffles by torch's global generator.
%start
import torch
torch.manual_seed(3)
%sine
rows = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
data = torch.utils.data.DataLoader(rows, batch_size=20, shuffle=True)
%model "adam"
%fit data, epochs=4
"""),
)  # fmt: skip

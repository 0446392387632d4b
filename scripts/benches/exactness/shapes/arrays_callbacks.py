"""Arrays, a validation split, and the callbacks that most scripts have."""

import harness
import keras
import numpy as np

keras.utils.set_random_seed(7)
LEARNING_RATE = 0.01
EPOCHS = 6
UNITS = 16
x = np.random.randn(150, 8).astype("float32")
y = (x[:, :1] ** 2).sum(1, keepdims=True)
model = keras.Sequential(
    [keras.Input((8,)), keras.layers.Dense(UNITS, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Adam(LEARNING_RATE), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
    keras.callbacks.ReduceLROnPlateau(patience=1, min_delta=0.05),
    keras.callbacks.ModelCheckpoint("best.keras", save_best_only=True),
    keras.callbacks.CSVLogger("log.csv"),
    keras.callbacks.TerminateOnNaN(),
    harness.callback(keras),
]
history = model.fit(x, y, 16, epochs=EPOCHS, validation_split=0.2, callbacks=callbacks, verbose=0)
harness.history(history)
harness.model(model)
harness.file("log.csv")
harness.saved("best.keras", keras)

"""tf_keras: Keras 2 as a package of its own, beside Keras 3."""

from __future__ import annotations

from . import keras

LIBRARY = keras.library("tf_keras", "tf-keras")

"""A training of torch in types that numpy lacks goes on as any other: bfloat16 is what models are made of today."""

from __future__ import annotations

import pytest

from .restarts import Restarts

pytestmark = pytest.mark.tf
SCRIPT = """
import json, os, signal
import keras, numpy as np, torch
keras.utils.set_random_seed(3)
class Holds(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.average = torch.zeros(3, dtype=torch.bfloat16)
        self.scales = [torch.ones(2).to(torch.float8_e4m3fn)]
        self.steps = torch.quantize_per_tensor(torch.zeros(2), 0.5, 0, torch.qint32)
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_end(self, batch, logs=None):
        n = self.epoch * 8 + batch
        self.average[n % 3] += n
        self.scales[0] = (self.scales[0].float() * 0.5 + n).to(torch.float8_e4m3fn)
        self.steps = torch.quantize_per_tensor(self.steps.dequantize() + n, 0.5, 0, torch.qint32)
        if os.environ["KILL"] == "%d,%d" % (self.epoch, batch):
            os.kill(os.getpid(), signal.SIGKILL)
    def shown(self):
        found = [self.average.float(), self.scales[0].float()]
        return [one.tolist() for one in [*found, self.steps.dequantize()]]
x = np.linspace(0, 1, 256, dtype="float32").reshape(64, 4)
layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
model = keras.Sequential([keras.Input((4,)), *layers])
model.compile("adam", "mse")
holds = Holds()
history = model.fit(x, x.sum(1), 8, epochs=3, verbose=0, callbacks=[holds])
weights = [keras.ops.convert_to_numpy(keras.ops.cast(one, "float32")).tolist() for one in model.variables]
print(json.dumps({"history": history.history, "weights": weights, "held": holds.shown()}))
"""
POLICY = "keras.utils.set_random_seed(3)\n"


def test_weights_and_tensors_of_every_type_are_restored(receiver, tmp_path, other_python):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace(POLICY, POLICY + 'keras.config.set_dtype_policy("bfloat16")\n'))
    run = Restarts(receiver, tmp_path, script, other_python("torch"), KERAS_BACKEND="torch")
    plain = run.undisturbed()
    first = run.attempt(kill="1,4")
    resumed = run.attempt(resume=True)

    assert first.notes("unsaved") == []
    (sentence,) = resumed.notes("resume")
    assert sentence.startswith("resuming from the ")
    assert sentence.endswith("checkpoint (epoch 2, batch 4)")
    assert resumed.rows == plain.rows

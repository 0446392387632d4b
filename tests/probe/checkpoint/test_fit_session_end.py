"""A training that is asked to end at a set time: saved, and ended there, so that its script does not go on."""

from __future__ import annotations

import sys
import time

import pytest

from stallguard.probe import wire
from tests.probe.receiver import Heard

from .restarts import OFTEN

pytestmark = pytest.mark.tf
# Asks itself to end, as the supervisor does through the page, after a batch of its second epoch.
SCRIPT = """
import os, sys
from _stallguard_probe import settings
import keras, numpy as np
keras.utils.set_random_seed(3)
x = np.random.rand(32, 4).astype("float32")
class Asks(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == (1, 2):
            path = os.path.join(settings.of(os.environ).pages, "%d.page" % os.getpid())
            with open(path, "r+b") as page:
                page.seek(SLOT * 8)
                page.write((COMMAND).to_bytes(8, "little"))
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
own = [keras.callbacks.BackupAndRestore("own")] if sys.argv[1] == "own" else []
model.fit(x, x.sum(1), 4, epochs=200, verbose=0, callbacks=[*own, Asks()])
print("the script goes on")
""".replace("SLOT", str(wire.SLOT["command"])).replace("COMMAND", str(wire.COMMANDS.index("stop")))


def ended(receiver, folder, whose, **environment):
    """Run the script, send SIGTERM once it says that it waits for it; return its exit code and output."""
    (folder / "train.py").write_text(SCRIPT)
    heartbeat, child = Heard(), receiver.start(
        [sys.executable, str(folder / "train.py"), whose], folder, **OFTEN, **environment
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and child.poll() is None:
        receiver.receive(heartbeat)
        if any(note["kind"] == "stop" and note["facts"].get("saved") for note in heartbeat.notes):
            child.terminate()
            break
    out, _ = child.communicate(timeout=60)
    return child.returncode, out


@pytest.mark.parametrize("whose", ["ours", "own"])
def test_what_follows_a_fit_is_not_done_with_a_model_half_trained(receiver, tmp_path, whose):
    checkpoints = tmp_path / "checkpoints"
    assert ended(receiver, tmp_path, whose, checkpoints=str(checkpoints)) == (-15, "")
    if whose == "own":
        assert any((tmp_path / "own").iterdir()), "Keras removes it if its fit ends"
    else:
        assert any(checkpoints.rglob("tensors.bin"))


def test_without_a_checkpoint_keras_ends_the_fit_and_the_script_goes_on(receiver, tmp_path):
    assert ended(receiver, tmp_path, "none") == (0, "the script goes on\n")

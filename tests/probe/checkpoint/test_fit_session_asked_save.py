"""A fit that is asked for a checkpoint, because memory is short: it is made after the batch, and the fit goes on."""

from __future__ import annotations

import signal
import sys

import pytest

from stallguard.collectors import stack_profile
from stallguard.probe import wire
from stallguard.storage import stack_samples

# Asks itself for a checkpoint in the first epoch, as the supervisor does through the page, and dies once it was made.
SCRIPT = """
import os, signal, time
from _stallguard_probe import settings
import keras, numpy as np
keras.utils.set_random_seed(3)
x = np.random.rand(4000, 4).astype("float32")
first = not settings.of(os.environ).resume
class Asks(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if not first or batch < 5:
            return
        with open(os.path.join(settings.of(os.environ).pages, "%d.page" % os.getpid()), "r+b") as page:
            page.seek(SLOT * 8)
            if batch == 5:
                page.write((COMMAND).to_bytes(8, "little"))
            elif not any(page.read(8)):
                print("saved before batch", batch, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.01)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), 4, epochs=2, verbose=0, callbacks=[Asks()])
""".replace("SLOT", str(wire.SLOT["command"])).replace("COMMAND", str(wire.COMMANDS.index("save")))


# Has a callback that keeps so much that each checkpoint takes most of the time.
LARGE = """
import time
import keras, numpy as np
x = np.random.rand(400000, 4).astype("float32")
class Keeps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.kept, self.until = [np.ones(500_000) for _ in range(40)], time.monotonic() + 9
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = time.monotonic() > self.until
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, x.sum(1), 4, verbose=0, callbacks=[Keeps()])
"""


@pytest.mark.tf
def test_the_time_of_checkpoints_of_stallguard_is_no_saving_of_the_script(receiver):
    (receiver.folder / "train.py").write_text(LARGE)
    kept = {
        "checkpoints": str(receiver.folder / "checkpoints"),
        "checkpoint_every": 0, "checkpoint_cost": 1, "resume": False,
    }  # fmt: skip
    script = [sys.executable, str(receiver.folder / "train.py")]
    ended = receiver.run(script, timeout=120, token=1, **kept)
    assert ended.code == 0, ended.err
    (file,) = receiver.folder.rglob("*.profile")
    samples = stack_samples.read(file)
    assert samples is not None
    assert samples.saves == 0
    profile = stack_profile.summarise(samples)
    assert profile.phases["stallguard"] > 0.3 * profile.seconds
    assert "checkpoint" not in profile.phases


@pytest.mark.tf
def test_the_checkpoint_that_was_asked_for_is_made_after_the_batch_also_if_none_is_due(receiver):
    (receiver.folder / "train.py").write_text(SCRIPT)
    script = [sys.executable, str(receiver.folder / "train.py")]
    kept = {"checkpoints": str(receiver.folder / "checkpoints"), "checkpoint_every": 3600}
    asked = receiver.run(script, timeout=120, token=1, resume=False, **kept)
    assert asked.code == -signal.SIGKILL, asked.err
    batch = asked.out.split()[-1]

    again = receiver.run(script, timeout=120, token=2, resume=True, **kept)
    assert again.code == 0, again.err
    told = [note["text"] for note in again.notes if note["kind"] == "resume"]
    assert [text.partition("checkpoint ")[2] for text in told] == [f"(epoch 1, batch {batch})"]

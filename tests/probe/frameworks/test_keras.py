"""The hooks of Keras' callbacks, in a library that has no more than its names."""

from __future__ import annotations

import subprocess

import pytest

from stallguard.probe import wire
from tests.probe.receiver import Heard, python, until

LIKE_KERAS = """
class CallbackList:
    model = None
    params = {"epochs": 1, "steps": 5}
    def on_train_batch_end(self, batch, logs=None): return batch
    def on_epoch_begin(self, epoch, logs=None): pass
    def on_epoch_end(self, epoch, logs=None): pass
    def on_train_begin(self, logs=None): pass
    def on_train_end(self, logs=None): pass
    def on_test_batch_begin(self, batch, logs=None): pass
    def on_predict_batch_begin(self, batch, logs=None): pass
    def on_test_batch_end(self, batch, logs=None): pass
    def on_predict_batch_end(self, batch, logs=None): pass
"""


@pytest.fixture
def like_keras(tmp_path):
    """A library with the names of Keras, in tmp_path."""
    home = tmp_path / "keras" / "src" / "callbacks"
    home.mkdir(parents=True)
    for folder in (home, home.parent, home.parent.parent):
        (folder / "__init__.py").touch()
    (home / "callback_list.py").write_text(LIKE_KERAS)
    return tmp_path


LOOP = """
import inspect, keras.src.callbacks.callback_list as module
callbacks = module.CallbackList()
print(type(module.__loader__).__name__, type(module.__spec__.loader).__name__)
print(inspect.getsource(module.CallbackList.on_train_batch_end).strip())
for batch in range(5):
    assert callbacks.on_train_batch_end(batch) == batch
"""


def test_a_hooked_module_and_its_functions_look_like_their_own(receiver, like_keras):
    heartbeat = receiver.run(python(LOOP), PYTHONPATH=str(like_keras))
    assert heartbeat.err == ""
    assert heartbeat.out.splitlines()[0] == "SourceFileLoader SourceFileLoader"
    assert heartbeat.out.splitlines()[1] == "def on_train_batch_end(self, batch, logs=None): return batch"
    assert heartbeat.last()["beats"] == 5
    assert "callbacks" in heartbeat.hello()["hooks"]


EPOCHS = """
import keras.src.callbacks.callback_list as module
class History:
    history = {"loss": [0.5, 0.25], "val_loss": [0.75], "a name": [0.1], "long" * 200: [0.1], "one": [object()]}
class Device(float): pass  # reading a number of this kind could wait for a device
History.history["tensor"] = [Device(0.5)]
callbacks = module.CallbackList()
callbacks._history = History
for epoch in range(3):
    callbacks.on_epoch_begin(epoch)
    callbacks.on_train_batch_end(0)
    callbacks.on_epoch_end(epoch, {"loss": 0.25})
"""


def test_the_results_of_an_epoch_are_reported_every_few_seconds(receiver, like_keras):
    heartbeat = receiver.run(python(EPOCHS), PYTHONPATH=str(like_keras))

    assert (heartbeat.code, heartbeat.err) == (0, "")
    notes = [note for note in heartbeat.notes if note["kind"] != "hello"]
    assert [(note["kind"], note["facts"]) for note in notes] == [
        ("epoch", {"epoch": "1", "values": "loss=0.25 val_loss=0.75"})
    ]


def test_the_property_of_the_model_is_left_alone(receiver, like_keras):
    """On JAX it moves the state of the training, which another thread must not do while a step runs."""
    script = EPOCHS.replace(
        "callbacks._history", "module.CallbackList.model = property(lambda _: print('touched'))\ncallbacks._history"
    )
    heartbeat = receiver.run(python(script), PYTHONPATH=str(like_keras))
    assert (heartbeat.code, heartbeat.out) == (0, "")
    assert [note["kind"] for note in heartbeat.notes if note["kind"] != "hello"] == ["epoch"]


def test_a_version_that_lacks_a_hook_is_said_and_harmless(receiver, like_keras):
    file = like_keras / "keras" / "src" / "callbacks" / "callback_list.py"
    file.write_text(LIKE_KERAS.replace("on_epoch_end", "on_period_end"))
    heartbeat = receiver.run(python(LOOP), PYTHONPATH=str(like_keras))
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert "callbacks" not in heartbeat.hello()["hooks"]
    assert [note["kind"] for note in heartbeat.notes if note["kind"] != "hello"] == ["hooks"]


def test_too_many_surprises_and_the_probe_steps_aside(receiver, like_keras):
    """The library accepts an epoch that is no number; the hook cannot store it, and must not raise or print."""
    loop = LOOP + "for _ in range(20): callbacks.on_epoch_begin('first')\n"
    loop += "print(module.CallbackList.on_epoch_begin.__code__.co_filename)\n"
    (like_keras / "torch").mkdir()
    (like_keras / "torch" / "__init__.py").touch()
    (like_keras / "torch" / "serialization.py").write_text("def save(): pass\n")
    loop += "import torch.serialization as later\n"
    loop += "print(later.save.__code__.co_filename)\n"
    heartbeat = receiver.run(python(loop), PYTHONPATH=str(like_keras))
    assert (heartbeat.code, heartbeat.err) == (0, "")
    assert heartbeat.out.splitlines()[-2].endswith("callback_list.py")  # the hook is out
    assert heartbeat.out.splitlines()[-1].endswith("serialization.py")  # and none comes in any more
    assert heartbeat.last()["flags"] & wire.FLAG_STEPPED_ASIDE
    assert "aside" in [note["kind"] for note in heartbeat.notes]


@pytest.mark.parametrize("error", ["raise ImportError('no such device')", "raise ValueError(1)", "1 +", "1 / 0"])
def test_an_import_that_fails_fails_as_ever(receiver, like_keras, error):
    (like_keras / "keras" / "src" / "callbacks" / "callback_list.py").write_text(error + "\n")
    code = "import keras.src.callbacks.callback_list"
    heartbeat = receiver.run(python(code), PYTHONPATH=str(like_keras))
    plain = subprocess.run(
        python(code), env={"PYTHONPATH": str(like_keras)}, capture_output=True, text=True, check=False
    )
    assert (heartbeat.code, heartbeat.err) == (plain.returncode, plain.stderr)


def test_a_stop_ends_the_fit_after_the_batch(receiver, like_keras):
    loop = (
        "import keras.src.callbacks.callback_list as module, time, sys\n"
        "class Model: stop_training = False\n"
        "callbacks = module.CallbackList(); callbacks.model = Model()\n"
        "batch = 0\n"
        "while not callbacks.model.stop_training and batch < 300:\n"
        "    callbacks.on_train_batch_end(batch); batch += 1; time.sleep(0.02)\n"
        "print('stopped' if callbacks.model.stop_training else 'ran on')\n"
    )
    heartbeat = Heard()
    child = receiver.start(python(loop), PYTHONPATH=str(like_keras))
    until(receiver, heartbeat, lambda heartbeat: heartbeat.records and heartbeat.last()["beats"] > 3)
    with (receiver.folder / "probe" / f"{child.pid}.page").open("r+b") as page:
        page.seek(wire.SLOT["command"] * 8)
        page.write(wire.COMMANDS.index("stop").to_bytes(8, "little"))
    out = child.communicate(timeout=20)[0]
    assert out == "stopped\n"
    record = receiver.pages()[child.pid]
    assert record["flags"] & wire.FLAG_STOP_ASKED
    assert record["beats"] < 300

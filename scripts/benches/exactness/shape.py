"""A shape: a script as a user would write it, and the instants at which it is disturbed.

The tables are in scripts_*.py.  The first line of a script says what it is; the beginning of its name says which
environment runs it.  A line that begins with % stands for the lines that many scripts share (PARTS).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.scripts import written

GUARDED, MID, SAVE, BETWEEN = "guarded", "mid-epoch", "in a save", "between"
HALVED, SEGMENTS, EDITED, DEFAULTS = "halved", "segments", "edited", "defaults"
DISTURBANCES = {
    GUARDED: "under guard, undisturbed",
    MID: "killed inside an epoch",
    SAVE: "killed inside a save",
    BETWEEN: "killed at an epoch's end, or at the beginning of the next",
    HALVED: "stalled for ever, then continued in slices of half a batch",
    SEGMENTS: "ended and continued on purpose, again and again",
    EDITED: "killed, edited, and continued by --resume last",
    DEFAULTS: "killed inside an epoch, with the default settings: few saves are made",
}
ALWAYS = (GUARDED, MID, SAVE, BETWEEN)
ENVIRONMENTS = {"keras2_": "keras2", "tf_keras_": "tf216", "older_": "tf216", "jax_": "jax", "torch_": "torch"}
COMMENT, RATE, OPTIMIZER, LAYERS, EPOCHS = "comment", "learning rate", "optimizer", "layers", "epochs"


_SEED = "keras.utils.set_random_seed(7)"
_KERAS = "import harness\nimport keras\nimport numpy as np\n"
_START = f"{_KERAS}{_SEED}"
_START_TENSORFLOW = f"{_KERAS}import tensorflow as tf\n{_SEED}"
_SINE = 'x = np.random.rand(120, 6).astype("float32")\ny = np.sin(x.sum(1, keepdims=True) * 3)'
_DENSE = 'model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])'
_SHOWN = "harness.history(history)\nharness.model(model)"
_REORDERING = """class Rows(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.order = np.arange(96)
    def __len__(self):
        return 6
    def __getitem__(self, index):
        part = self.order[index * 16 : (index + 1) * 16]
        return x[part], y[part]
    def on_epoch_end(self):
        np.random.shuffle(self.order)"""
_SCHEDULER = """def scheduler(epoch, lr):
    return lr if epoch < 1 else float(lr * np.exp(-0.1))"""
_USUAL_ARRAYS = """model = keras.Sequential(
    [keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dropout(0.1), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
callbacks = [
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=1, min_delta=0.1),
    keras.callbacks.EarlyStopping(monitor="loss", patience=3, restore_best_weights=True),
    keras.callbacks.CSVLogger("log.csv"), harness.callback(keras),
]
history = model.fit(x, y, 20, epochs=4, callbacks=callbacks, verbose=0)"""
_REORDERED_ROWS = """callbacks = [keras.callbacks.LearningRateScheduler(scheduler), harness.callback(keras)]
history = model.fit(Rows(), epochs=4, shuffle=False, callbacks=callbacks, verbose=0)"""
_COMPILED = 'model.compile(keras.optimizers.Adam(0.01), "mse")'
_FIT = f"history = model.fit(%s, callbacks=[harness.callback(keras)], verbose=0)\n{_SHOWN}"
_FIT_ALSO = f"history = model.fit(%s, callbacks=[*callbacks, harness.callback(keras)], verbose=0)\n{_SHOWN}"
_WITH = f"""{_DENSE}
model.compile(keras.optimizers.SGD(0.1), "mse")
callbacks = [%s]
{_FIT_ALSO.replace("%s", "x, y, 20, epochs=5")}"""
PARTS = {  # "%s": what follows the name
    "start": _START,
    "start, tensorflow": _START_TENSORFLOW,
    "rows": f"{_START}\n{_SINE}",
    "rows, tensorflow": f"{_START_TENSORFLOW}\n{_SINE}",
    "keras2": f"import harness\nimport numpy as np\nfrom tensorflow import keras\n{_SEED}",
    "sine": _SINE,
    "dense": _DENSE,
    "model": f'{_DENSE}\nmodel.compile(%s, "mse")',
    "fit": _FIT,
    "fit+": _FIT_ALSO,
    "adam": f"{_DENSE}\n{_COMPILED}\n{_FIT}",
    "then adam": f"{_COMPILED}\n{_FIT}",
    "then slow adam": f'model.compile("adam", "mse")\n{_FIT}',
    "with callbacks": _WITH,
    "shown": _SHOWN,
    "reordering": _REORDERING,
    "scheduler": _SCHEDULER,
    # Two scripts that run on several frameworks.
    "usual arrays": f'{_START}\n{_SINE}\n{_USUAL_ARRAYS}\n{_SHOWN}\nharness.file("log.csv")',
    "reordered rows": f"{_START}\n{_SINE}\n{_REORDERING}\n{_SCHEDULER}\n{_DENSE}\n"
    f'model.compile(keras.optimizers.SGD(0.1), "mse")\n{_REORDERED_ROWS}\n{_SHOWN}',
}


class Edit(NamedTuple):
    """What a user changes between two runs: one of the kinds above, and the text that takes another's place."""

    kind: str
    old: str = ""
    new: str = "\n# a remark\n"


class Shape(NamedTuple):
    """A script.  `at`: fit, epoch and batch of the kill; `save`: number of the file operation that is the last."""

    name: str
    also: tuple[str, ...] = ()  # disturbances beyond ALWAYS
    edit: Edit | None = None
    at: tuple[int, int, int] = (0, 1, 3)
    save: int = 40
    seeded: bool = True
    saved: bool = True  # checkpoints are made of it
    role: str = ""  # which process is disturbed, if there are several
    error: str = ""  # with which the script itself must end after the disturbance
    words: tuple[str, ...] = ()  # of the command, if it is no script of Python's
    files: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # the disturbances, if not ALWAYS and `also`
    text: str = ""

    @property
    def python(self) -> str:
        """Return the name of the environment that runs it, "" for the main one."""
        return next((place for start, place in ENVIRONMENTS.items() if self.name.startswith(start)), "")

    @property
    def disturbances(self) -> tuple[str, ...]:
        """Return the disturbances that it is put to, in the order of the table."""
        chosen = set(self.only) or {*ALWAYS, *self.also, *((EDITED,) if self.edit else ())}
        return tuple(name for name in DISTURBANCES if name in chosen)

    def command(self) -> tuple[str, ...]:
        return self.words or (f"{self.name}.py",)

    def command_files(self) -> tuple[str, ...]:
        return tuple(word for word in self.command() if word.endswith((".py", ".sh")))

    def texts(self, beside: Mapping[str, str]) -> dict[str, str]:
        """Return each file that it needs, by its name.  `beside`: the files that are no shape."""
        return {name: beside.get(name, self.text) for name in (*self.command_files(), *self.files)}

    def order(self, disturbance: str, index: int) -> str:
        """Return the words for the harness.  `index` spreads kills over the operations of a save, and over moments."""
        fit, epoch, batch = self.at
        if disturbance in (MID, DEFAULTS, EDITED):
            return f"kill batch {fit} {epoch} {batch}"
        if disturbance == HALVED:
            return f"stall batch {fit} {epoch} {batch}"
        if disturbance == SAVE:
            return f"kill save {self.save + index % 7}"  # a save is about as many operations
        if disturbance == BETWEEN:
            return f"kill {('begin', 'end')[index % 2]} {fit} {epoch}"
        return ""


def row(name: str, *also: str, text: str = "", **more: Any) -> Shape:
    return Shape(name, also, text=written(text, PARTS) if text else "", **more)

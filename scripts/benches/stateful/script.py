"""Writes the training of a case as a script, as a user would write it.

The script reports its moments and results by audit events (`sys.audit`), so nothing of the bench is within
its reach: no module, no object that a checkpoint could hold.
"""

from __future__ import annotations

import textwrap

from .cases import HANDED, PIPELINE, VALIDATION, WITHOUT_FUNCTION, Case
from .loops import LOOPS, Loop
from .things import Thing, catalog

ROWS = 2  # in a batch
# Kinds of data whose iterator never ends, or is read ahead: what their functions hold at the end depends on time.
READ_AHEAD = ("generator", "from_generator")

_HEAD = """import os
import sys
import zlib

{library}
import numpy as np
{setups}
{seeded}
SEED = {seed}
EPOCHS, STEPS, ROWS = {epochs}, {steps}, {rows}
FEED = {{{feeds}}}


def number_of(value):
    return zlib.crc32(repr(value).encode()) % 997 / 9970


def scale(value):  # not a row's first number, which `row_of` reads
    return np.array([1.0, 1.0 + number_of(value)], "float32")


def row_of(x):
    try:
        return round(float(x[0][0]) * 100)
    except Exception:  # Keras builds with it
        return None

{functions}
X = np.stack([np.arange(STEPS * ROWS) / 100, np.linspace(-1, 1, STEPS * ROWS)], 1).astype("float32")
Y = X[:, 1:] * 2 + X[:, :1]
"""
_FUNCTIONS = """
def make_{i}():
    return {make}


def change_{i}(thing, n):
{change}
    return thing


def look_{i}(thing):
    return {look}


def use_{i}(thing, n):
    thing = change_{i}(thing, n)
    {feed}
    sys.audit("state.moment")
    return thing

"""
# At each place: what defines the thing, and an expression that finds it at the end.
_CALLBACK = """
class Holder{i}(keras.callbacks.Callback):
    {of_class}

    def __init__(self):
        super().__init__()
        self.epoch = 0
        {of_object}

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        {use}


holder_{i} = Holder{i}()
CALLBACKS.append(holder_{i})
"""
_LOSS = 'float(logs["loss"])'  # Keras gives it; other loops show their weights
# What a validation notes in `rows` is forgotten as the epoch ends: it has its first value again.  `first` is what the
# first validation of the training finds.
_VALIDATION = """
class Holder{i}(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.held = make_{i}()
        self.count, self.rows, self.first = 0, [], []

    def on_train_batch_end(self, batch, logs=None):
        FEED["{i}"] += (len(self.rows) + sum(self.first)) / 997

    def on_test_batch_end(self, batch, logs=None):
        if not self.first:
            self.first.append(number_of({seen}))
        self.held = use_{i}(self.held, self.count)
        self.rows.append(self.count)
        self.count += 1

    def on_epoch_end(self, epoch, logs=None):
        self.rows.clear()


holder_{i} = Holder{i}()
CALLBACKS.append(holder_{i})
"""
_EPOCH_BEGIN = """
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
"""
_N = "self.epoch * STEPS + batch"
_CLOSURE = """
def closed_{i}():
    held = make_{i}()

    def step(batch, logs=None):
        {use}

    return step, lambda: look_{i}(held)


step_{i}, see_{i} = closed_{i}()
CALLBACKS.append(keras.callbacks.LambdaCallback(on_train_batch_end=step_{i}))
"""
_GLOBAL = """
THING_{i} = make_{i}()


def step_{i}(batch, logs=None):
    {use}


CALLBACKS.append(keras.callbacks.LambdaCallback(on_train_batch_end=step_{i}))
"""
_DEFAULT = """
def step_{i}(batch, logs=None, held={made}):
    {use}


CALLBACKS.append(keras.callbacks.LambdaCallback(on_train_batch_end=step_{i}))
"""
_LAYER = """
class Layer{i}(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.held = make_{i}()

    def call(self, x, n=None):
        if n is None:
            return x
        {use}
        return x * (1.0 + FEED["{i}"])

"""
_NET = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        {layers}
        {held}
        self.out = keras.layers.Dense(1)

    def call(self, x):
        n = row_of(x)
        {calls}
        return self.out(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **more):
        loss = super().compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        n = row_of(x)
        if n is None:
            return loss
        {uses}
        return loss * (1.0 + sum(FEED.values()))


net = Net()
net.compile(keras.optimizers.Adam(0.05), "mse", run_eagerly=True)
"""
_PIPE = """
def made_pipe():
    {made}

    def pipe(x, n):
        {nonlocals}
        sys.audit("state.moment")
        {uses}
        return x

    return pipe, lambda: [{looks}]


pipe, see_pipe = made_pipe()
"""
_DATA = {
    "arrays": "DATA, MORE = (X, Y), {'batch_size': ROWS, 'shuffle': False}",
    "shuffled": "DATA, MORE = (X, Y), {'batch_size': ROWS}",
    "generator": """
def batches():
    while True:
        for at in range(0, len(X), ROWS):
            yield pipe(X[at : at + ROWS], at), Y[at : at + ROWS]


DATA, MORE = (batches(),), {"steps_per_epoch": STEPS}
""",
    "pydataset": """
class BatchesOfRows(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.pipe = pipe

    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        at = index * ROWS
        return self.pipe(X[at : at + ROWS], at), Y[at : at + ROWS]


DATA, MORE = (BatchesOfRows(),), {"shuffle": False}
""",
    "tfdata": """
import tensorflow


def mapped(x, y):
    x = tensorflow.numpy_function(lambda one: pipe(one, round(float(one[0]) * 100)), [x], tensorflow.float32)
    return tensorflow.ensure_shape(x, (2,)), y


DATA, MORE = (tensorflow.data.Dataset.from_tensor_slices((X, Y)).map(mapped).batch(ROWS),), {}
""",
    "from_generator": """
import tensorflow


def rows():
    for at in range(len(X)):
        yield pipe(X[at], at), Y[at]


SIGNATURE = (tensorflow.TensorSpec((2,), tensorflow.float32), tensorflow.TensorSpec((1,), tensorflow.float32))
DATA, MORE = (tensorflow.data.Dataset.from_generator(rows, output_signature=SIGNATURE).batch(ROWS),), {}
""",
    "loader": """
import torch.utils.data


class EachRow(torch.utils.data.Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, at):
        return torch.tensor(pipe(X[at], at)), torch.tensor(Y[at])


DATA, MORE = (torch.utils.data.DataLoader(EachRow(), ROWS),), {}
""",
}
_WEIGHTS = "[one.tolist() for one in net.get_weights()]"
_TAIL = """

class Moments(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        sys.audit("state.began")

    def on_epoch_begin(self, epoch, logs=None):
        sys.audit("state.moment")

    def on_train_batch_begin(self, batch, logs=None):
        sys.audit("state.moment")

    def on_train_batch_end(self, batch, logs=None):
        sys.audit("state.moment")

    def on_epoch_end(self, epoch, logs=None):
        sys.audit("state.moment")


CALLBACKS.append(Moments())
{build}
history = net.fit(*DATA, epochs=EPOCHS, verbose=0, callbacks=CALLBACKS, {validation}**MORE)
sys.audit("state.result", "history", history.history)
sys.audit("state.result", "weights", {weights})
{results}
"""


def written(case: Case) -> str:
    """Return the script of a case.  Raises KeyError for a thing or a kind of data that does not exist."""
    things = [(f"{number}", catalog()[name], place) for number, (name, place) in enumerate(case.things)]
    setups = "\n".join(dict.fromkeys(thing.setup for _, thing, _ in things))
    loop, validates = LOOPS.get(case.backend), any(place == VALIDATION for _, _, place in things)
    library, seeded = ("import keras", f"keras.utils.set_random_seed({case.seed})")
    if loop is not None:
        library, seeded = loop.head, f"np.random.seed({case.seed})"
        for name, call in (("torch", "torch.manual_seed"), ("mlx", "mx.random.seed")):
            seeded += f"\n{call}({case.seed})" if f"import {name}" in loop.head else ""
    parts = [
        _HEAD.format(
            library=library, seeded=seeded,
            setups=setups, seed=case.seed, epochs=case.epochs, steps=case.steps, rows=ROWS,
            feeds=", ".join(f'"{i}": 0.0' for i, _, _ in things),
            functions="".join(_functions(*one) for one in things),
        ),
        "CALLBACKS = []\nKEPT = {}\nHANDED = {}\n",
    ]  # fmt: skip
    results = []
    for i, thing, place in things:
        if place == HANDED:
            parts.append(f'KEPT["{i}"], HANDED["{i}"] = make_{i}(), use_{i}\n')
            results.append(f'sys.audit("state.result", "{i}", look_{i}(KEPT["{i}"]))')
        elif place not in (PIPELINE, "model"):
            text, look = _held(i, thing, place, loop)
            parts.append(text)
            results.append(f'sys.audit("state.result", "{i}", {look})')
    parts.append(_net(things, _NET if loop is None else loop.net))
    results += [
        f'sys.audit("state.result", "{i}", look_{i}(net.held_{i}))' for i, _, place in things if place == "model"
    ]
    if case.data not in WITHOUT_FUNCTION:
        mine = [(i, thing) for i, thing, place in things if place == PIPELINE]
        parts.append(_pipe(mine))
        if mine and case.data not in READ_AHEAD:
            results.append('sys.audit("state.result", "pipe", see_pipe())')
    if loop is not None:
        items = "X[at]" if case.data in WITHOUT_FUNCTION else "pipe(X[at], at)"
        parts.append(loop.data.format(items=items, shuffle="shuffled" in case.data))
        tail = loop.tail.replace("{shuffle}", str("shuffled" in case.data))
        tail = tail.replace("{validation}", loop.validation if validates else "")
        weights = f'sys.audit("state.result", "weights", {loop.weights})'
        return "\n".join([*parts, tail, weights, *results])
    parts.append(_DATA[case.data])
    build = "net(X[:ROWS])\nnet.optimizer.build(net.trainable_variables)" if case.seed % 3 else ""
    validation = "validation_data=(X, Y), validation_batch_size=ROWS, " if validates else ""
    parts.append(_TAIL.format(results="\n".join(results), build=build, validation=validation, weights=_WEIGHTS))
    return "\n".join(parts)


def _functions(i: str, thing: Thing, place: str) -> str:
    feed = f'FEED["{i}"] = number_of(look_{i}(thing))'
    if place == PIPELINE:
        feed = "pass"  # its data show it; in another thread FEED would change at any time
    if thing.is_random:
        feed = f'sys.audit("state.past", "{i}", look_{i}(thing))'
    change = textwrap.indent(thing.change, "    ")
    return _FUNCTIONS.format(i=i, make=thing.make, change=change, look=thing.look, feed=feed)


def _held(i: str, thing: Thing, place: str, loop: Loop | None = None) -> tuple[str, str]:
    """Return the text that holds a thing at a place, and the expression that looks at it at the end."""
    if loop is not None:
        text, look = _held(i, thing, place)
        text = text.replace(_LOSS, loop.weights)
        if place == "layer":
            use = f"self.held = use_{i}(self.held, n)" if thing.rebinds else f"use_{i}(self.held, n)"
            return loop.layer.format(i=i, use=use), look
        text = text.replace("keras.callbacks.", "").replace(_EPOCH_BEGIN, "")
        for event in ("on_train_batch_end", "on_epoch_end"):
            text = text.replace(f"def {event}(", f"def {event}_(")
        return text.replace("def on_test_batch_end(self, batch, logs=None)", "def on_test_batch_end_(self)"), look
    again = thing.rebinds
    if place == VALIDATION:
        return _VALIDATION.format(i=i, seen=_LOSS), f"look_{i}(holder_{i}.held)"
    of_class = of_object = "pass"
    if place in ("callback", "nested", "class"):
        where = {"callback": "self.held", "nested": 'self.held["a"][0]', "class": "self.held"}[place]
        target = f"Holder{i}.held" if place == "class" else where
        if place == "class":
            of_class = f"held = make_{i}()"
        else:
            of_object = f"self.held = make_{i}()" if place == "callback" else f'self.held = {{"a": [make_{i}(), 1]}}'
        call = f"use_{i}({where}, {_N})"
        text = _CALLBACK.format(
            i=i, of_class=of_class, of_object=of_object, use=f"{target} = {call}" if again else call
        )
        return text, f"look_{i}({where.replace('self', f'holder_{i}')})"
    if place == "closure":
        use = f"nonlocal held\n        held = use_{i}(held, batch)" if again else f"use_{i}(held, batch)"
        return _CLOSURE.format(i=i, use=use), f"see_{i}()"
    if place == "global":
        call = f"use_{i}(THING_{i}, batch)"
        use = f"global THING_{i}\n    THING_{i} = {call}" if again else call
        return _GLOBAL.format(i=i, use=use), f"look_{i}(THING_{i})"
    if place == "default":
        made = f"[make_{i}()]" if again else f"make_{i}()"
        use = f"held[0] = use_{i}(held[0], batch)" if again else f"use_{i}(held, batch)"
        inside = "[0]" if again else ""
        return _DEFAULT.format(i=i, made=made, use=use), f"look_{i}(step_{i}.__defaults__[1]{inside})"
    if place != "layer":
        raise KeyError(place)
    use = f"self.held = use_{i}(self.held, n)" if again else f"use_{i}(self.held, n)"
    return _LAYER.format(i=i, use=use), f"look_{i}(net.layer_{i}.held)"


def _net(things: list[tuple[str, Thing, str]], template: str) -> str:
    layers = [i for i, _, place in things if place == "layer"]
    held = [(i, thing) for i, thing, place in things if place == "model"]

    def lines(found: list[str]) -> str:
        return "\n        ".join(found) or "pass"

    return template.format(
        layers=lines([f"self.layer_{i} = Layer{i}()" for i in layers]),
        calls=lines([f"x = self.layer_{i}(x, n=n)" for i in layers]),
        held=lines([f"self.held_{i} = make_{i}()" for i, _ in held]),
        uses=lines([
            (f"self.held_{i} = " if thing.rebinds else "") + f"use_{i}(self.held_{i}, n)" for i, thing in held
        ]),
    )  # fmt: skip


def _pipe(things: list[tuple[str, Thing]]) -> str:
    def lines(found: list[str], indent: str) -> str:
        return f"\n{indent}".join(found) or "pass"

    again = [f"held_{i}" for i, thing in things if thing.rebinds]
    uses = []
    for i, thing in things:
        uses += [
            (f"held_{i} = " if thing.rebinds else "") + f"use_{i}(held_{i}, n)",
            f"x = x * scale(look_{i}(held_{i}))" if not thing.is_random else "pass",
        ]
    return _PIPE.format(
        made=lines([f"held_{i} = make_{i}()" for i, _ in things], "    "),
        nonlocals=f"nonlocal {', '.join(again)}" if again else "pass",
        uses=lines(uses, "        "), looks=", ".join(f"look_{i}(held_{i})" for i, _ in things),
    )  # fmt: skip

"""The frameworks' randomness: the same in each attempt, and no less random within one."""

from __future__ import annotations

import sys

import pytest

from stallguard.probe.checkpoint import keras_hooks as orders
from stallguard.probe.frameworks import tensorflow
from tests.probe.attempts import Attempts, printed, same
from tests.probe.imported import ForkReceiver

TENSORFLOW = """
import json, random
import numpy as np
random.random()
import tensorflow as tf

def many(draw):
    return [np.asarray(value).tolist() for value in (draw(), draw())]

logits = tf.math.log([[1.0, 2.0, 3.0, 4.0]])
words = tf.constant([chr(letter) for letter in range(65, 91)])
kept = {
    "uniform": many(lambda: tf.random.uniform([4])),
    "normal": many(lambda: tf.random.normal([4], 1.0, 2.0)),
    "double": many(lambda: tf.random.normal([4], dtype=tf.float64)),
    "half": many(lambda: tf.random.uniform([9], dtype=tf.float16)),
    "truncated": many(lambda: tf.random.truncated_normal([4])),
    "integers": many(lambda: tf.random.uniform([4], 0, 10**6, tf.int64)),
    "shape": many(lambda: tf.random.uniform(tf.constant([2, 3]))),
    "shuffle": many(lambda: tf.random.shuffle(tf.range(100))),
    "strings": many(lambda: tf.random.shuffle(words).numpy().astype(str)),
    "categorical": many(lambda: tf.random.categorical(logits, 40)),
    "keras": many(lambda: tf.keras.initializers.GlorotUniform()([3, 3])),
    "variable": many(lambda: tf.Variable(tf.initializers.RandomNormal()([3]))),
    "dropout": many(lambda: tf.nn.dropout(tf.ones([64]), 0.5)),
    "generator": many(lambda: tf.random.Generator.from_non_deterministic_state().normal([3])),
    "global generator": many(lambda: tf.random.get_global_generator().uniform([3])),
    "layers": many(lambda: tf.keras.layers.Dropout(0.5)(tf.ones([64]), training=True)),
    "shuffled": many(lambda: list(tf.data.Dataset.range(100).shuffle(100).as_numpy_iterator())),
}
seeded = {"operation": many(lambda: tf.random.uniform([4], seed=5))}
tf.random.set_seed(7)
seeded["global"] = many(lambda: tf.random.uniform([4]))
seeded["normal"] = many(lambda: tf.random.normal([4]))
seeded["shuffled"] = many(lambda: tf.random.shuffle(tf.range(100)))
print(json.dumps({"kept": kept, "seeded": seeded}))
"""


@pytest.fixture
def forked(servers):
    """A receiver for what no seed of the run reaches; an attempt itself imports its framework under the probe."""
    with ForkReceiver(servers) as there:
        yield there


@pytest.fixture(scope="session")
def interpreter(other_python):
    """Return a function from the name of an environment to its interpreter."""
    return lambda name: sys.executable if name == "here" else other_python(name)


@pytest.mark.tf
@pytest.mark.parametrize("environment", ["here", "keras2"])
def test_tensorflow_draws_the_same_in_each_attempt_and_something_new_each_time(
    receiver, forked, tmp_path, interpreter, environment
):
    script = Attempts(receiver, tmp_path, TENSORFLOW, interpreter(environment))
    checkpoints = {"checkpoints": str(tmp_path / "checkpoints")}
    first, second = script.draws(**checkpoints), script.draws(**checkpoints)
    free = script.draws("", receiver=forked)
    assert first["kept"] == second["kept"]
    assert not same(first["kept"], free["kept"])
    assert [name for name, (one, other) in first["kept"].items() if one == other] == []
    assert first["seeded"] == free["seeded"]


WITHIN = """
import json
import numpy as np
import tensorflow as tf

facts, n = {}, 40_000
uniform, normal = tf.random.uniform([n]).numpy(), tf.random.normal([n]).numpy()
more = tf.random.uniform([n], dtype=tf.float64).numpy()
facts["moments"] = [float(value) for value in (uniform.mean(), uniform.var() * 12, normal.mean(), normal.var())]
pairs = (uniform, normal), (uniform, more), (normal, more)
facts["related"] = [float(np.corrcoef(one, other)[0, 1]) for one, other in pairs]
facts["small draws"] = float(np.mean([tf.random.uniform([]).numpy() for _ in range(2000)]))
facts["categories"] = np.bincount(tf.random.categorical(tf.math.log([[1.0, 3.0]]), n)[0], minlength=2).tolist()
facts["integers"] = np.bincount(tf.random.uniform([n], 3, 7, tf.int32), minlength=7).tolist()
facts["shuffled"] = sorted(tf.random.shuffle(tf.range(9)).numpy().tolist())

pipeline = tf.data.Dataset.range(40).shuffle(40).map(lambda x: tf.random.uniform([]))
facts["epochs"] = [[float(value) for value in pipeline] for _ in range(3)]
order = tf.data.Dataset.range(40).shuffle(40)
facts["orders"] = [[int(value) for value in order] for _ in range(3)]
inner = tf.data.Dataset.range(3).flat_map(lambda x: tf.data.Dataset.range(40).shuffle(40))
facts["inner"] = [[int(value) for value in inner] for _ in range(2)]

@tf.function
def step():
    return tf.random.normal([])

facts["steps"] = [float(step()) for _ in range(9)]

def resident():
    import resource, sys
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

before = resident()
for _ in range(3000):
    tf.random.normal([3])
facts["grown"] = resident() - before

def error(call):
    try:
        call()
    except Exception as raised:
        return [type(raised).__name__, str(raised)]

facts["errors"] = [
    error(lambda: tf.random.uniform([3], 5, 3, tf.int32)), error(lambda: tf.random.uniform([-1])),
    error(lambda: tf.random.normal("x")), error(lambda: tf.random.shuffle(tf.constant(3))),
]
with tf.GradientTape() as tape:
    alpha = tf.Variable(2.0)
    sample = tf.random.gamma([], alpha)
facts["gradient"] = tape.gradient(sample, alpha) is not None
tf.config.experimental.enable_op_determinism()
facts["determinism"] = [error(lambda: tf.random.normal([3])), error(tf.random.Generator.from_non_deterministic_state)]
print(json.dumps(facts))
"""


@pytest.mark.tf
@pytest.mark.parametrize("environment", ["here", "keras2"])
def test_tensorflow_stays_as_random_as_it_was(receiver, forked, tmp_path, interpreter, environment):
    script = Attempts(receiver, tmp_path, WITHIN, interpreter(environment))
    checkpoints = str(tmp_path / "checkpoints")
    heartbeat = script.run(checkpoints=checkpoints)
    facts, plain = printed(heartbeat), script.draws("", STALLGUARD_OWNER="1", receiver=forked)
    assert facts["moments"] == pytest.approx([0.5, 1, 0, 1], abs=0.05)  # 10 standard deviations of the mean
    assert facts["small draws"] == pytest.approx(0.5, abs=0.05)
    assert facts["related"] == pytest.approx([0, 0, 0], abs=0.04)
    assert facts["categories"] == pytest.approx([10_000, 30_000], abs=700)
    assert facts["integers"] == pytest.approx([0, 0, 0, *[10_000] * 4], abs=700)
    assert facts["shuffled"] == list(range(9))
    for name in ("epochs", "orders", "inner"):
        assert len({str(epoch) for epoch in facts[name]}) == len(facts[name]), name
    thirds = [str(facts["inner"][0][start : start + 40]) for start in (0, 40, 80)]
    assert len(set(thirds)) == 3
    assert len(set(facts["steps"])) == 9
    assert facts["grown"] < 30_000_000  # 3000 kernels would be 108 MB
    for name in ("errors", "determinism", "gradient"):
        assert facts[name] == plain[name], name
    said = set(heartbeat.hello()["beyond"])
    assert said >= {tensorflow.DRAWN_ANEW % tensorflow.IN_GRAPH, tensorflow.DRAWN_ANEW % "random_gamma", orders.INNER}


KERAS = """
import json, os, random
import numpy as np
order = np.random.default_rng().permutation(96)
if os.environ.get("KERAS") == "tf_keras":
    import tf_keras as keras
else:
    import keras
x = np.linspace(0, 1, 96 * 4, dtype="float32").reshape(96, 4)[order]
y = np.sin(x.sum(1, keepdims=True))
layers = [keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)]
if keras.__version__ >= "3":
    layers.insert(1, keras.layers.Dropout(0.3))
model = keras.Sequential([keras.layers.Input((4,)), *layers])
kept = {"order": order.tolist(), "weights": [w.tolist() for w in model.get_weights()]}
if keras.__version__ >= "3":
    kept["draw"] = np.asarray(keras.ops.convert_to_numpy(keras.random.normal((3,)))).tolist()
    kept["generator"] = int(keras.random.SeedGenerator().state[0])
# Eagerly on tf_keras: TensorFlow 2.16 would convert all of its code for a graph, ten seconds of each start.
model.compile("sgd", "mse", run_eagerly=keras.__name__.startswith("tf_keras"))
history = model.fit(x, y, 16, epochs=3, verbose=0, validation_split=0.2)
kept["losses"] = history.history["loss"]
kept["trained"] = [w.tolist() for w in model.get_weights()]
print(json.dumps(kept))
"""


@pytest.mark.tf
@pytest.mark.parametrize(
    ("environment", "backend"),
    [("here", "tensorflow"), ("keras2", "tensorflow"), ("tf216", "tf_keras"), ("jax", "jax"), ("torch", "torch")],
)
def test_an_unseeded_training_of_keras_ends_the_same_in_each_attempt(
    receiver, tmp_path, interpreter, environment, backend
):
    script = Attempts(receiver, tmp_path, KERAS, interpreter(environment))
    chosen = {"KERAS": backend} if backend == "tf_keras" else {"KERAS_BACKEND": backend}
    kept = []
    for number in range(2):
        heartbeat = script.run(checkpoints=str(tmp_path / f"checkpoints{number}"), **chosen)
        kept.append(printed(heartbeat))
        assert not [said for said in heartbeat.hello()["beyond"] if "without a seed" in said]
    assert kept[0] == kept[1]
    if environment == "here":  # the next of a loop is another training
        again = printed(script.again(checkpoints=str(tmp_path / "third"), **chosen))
        assert not same(kept[0], again)


TORCH = """
import json, random
import torch
def dropped():
    return torch.nn.functional.dropout(torch.ones(64)).tolist()
data = torch.utils.data.TensorDataset(torch.arange(50))
def workers():
    return [int(torch.utils.data.DataLoader(data, 5, shuffle=True, num_workers=0)._get_iterator()._base_seed)]
kept = {
    "rand": torch.rand(3).tolist(), "weights": torch.nn.Linear(3, 2).weight.tolist(),
    "dropout": dropped(), "again": dropped(),
    "split": [list(part.indices) for part in torch.utils.data.random_split(data, [40, 10])],
    "order": [int(row) for batch in torch.utils.data.DataLoader(data, 5, shuffle=True) for row in batch[0]],
    "workers": workers(), "seed()": torch.seed(), "reseeded": torch.rand(3).tolist(),
    "seed() again": torch.random.seed(),
}
seeded = {"generator": torch.rand(3, generator=torch.Generator().manual_seed(3)).tolist()}
torch.manual_seed(3)
seeded["global"] = torch.rand(3).tolist()
print(json.dumps({"kept": kept, "seeded": seeded, "queued": len(torch.cuda._lazy_seed_tracker.get_calls())}))
"""


@pytest.mark.tf
def test_torch_draws_the_same_in_each_attempt(receiver, tmp_path, other_python):
    script = Attempts(receiver, tmp_path, TORCH, other_python("torch"))
    first, second, free = script.draws(), script.draws(), script.draws("")
    assert first["kept"] == second["kept"]
    assert not same(first["kept"], free["kept"])
    assert first["kept"]["dropout"] != first["kept"]["again"]
    assert first["kept"]["seed()"] != first["kept"]["seed() again"]
    assert first["seeded"] == free["seeded"]
    assert first["queued"] == free["queued"]  # the script's own seed took the place of ours

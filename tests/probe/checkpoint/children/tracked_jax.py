"""What of JAX's trees comes back from a checkpoint: prints the names of the checks, and whether each held."""

import json
import os
from collections import deque

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.core import FrozenDict
from flax.training.train_state import TrainState

from stallguard.probe.checkpoint import tracked_jax
from stallguard.probe.checkpoint.tracked_objects import Packed, kept, unpacked

held = {}


def stored(state):
    """Return a state after a way through JSON and bytes."""
    packed = Packed()
    facts, blobs = packed.facts(packed.code(state))
    return unpacked(json.loads(json.dumps(facts)), [memoryview(bytes(one)) for one in blobs])


def resumed(state, begin):
    """Return what a later attempt has of a state: the one that it begins with, with the values of this one."""
    if not begin.fits(stored(state)):
        raise ValueError("it does not fit")
    begin.write(stored(state))
    return begin._value


def same(one, other):
    one, other = (jax.tree.flatten(tree) for tree in (one, other))
    return one[1] == other[1] and all(map(same_array, one[0], other[0]))


def same_array(one, other):
    if not isinstance(one, jax.Array):
        return type(one) is type(other) and np.array_equal(one, other)
    facts = [
        (array.dtype, array.shape, getattr(array, "weak_type", None), array.sharding, array._committed)
        for array in (one, other)
    ]
    numbers = [jax.random.key_data(array) if tracked_jax.is_key(array) else array for array in (one, other)]
    return facts[0] == facts[1] and np.asarray(numbers[0]).tobytes() == np.asarray(numbers[1]).tobytes()


def raises(action, word=""):
    try:
        action()
    except (TypeError, ValueError) as error:
        return word in str(error)
    return False


TX = optax.chain(optax.clip(1.0), optax.inject_hyperparams(optax.adamw)(1e-3))


def begin(wide=3):
    """Return the state that the script begins with: the same in each attempt."""
    params = {"w": jnp.ones((2, wide), jnp.bfloat16), "deep": [FrozenDict({"b": jnp.zeros(wide)}), (jnp.ones(1),)]}
    return {
        "params": params, "opt": TX.init(params), "key": jax.random.key(1), "raw": jax.random.PRNGKey(3),
        "keys": jax.random.split(jax.random.key(2), 3), "step": 0, "best": None, "log": {"losses": []},
        "last": deque(maxlen=2), "drawn": np.random.default_rng(1), "ema": np.zeros(2),
    }  # fmt: skip


def trained(state, times=2):
    """Change a state as a training does: each array is replaced."""
    for _ in range(times):
        slopes = jax.tree.map(lambda one: jnp.ones_like(one) * 0.3, state["params"])
        updates, state["opt"] = TX.update(slopes, state["opt"], state["params"])
        state["params"] = optax.apply_updates(state["params"], updates)
        state["key"], _ = jax.random.split(state["key"])
        state["keys"], state["raw"] = jax.random.split(state["keys"][0], 3), jax.random.PRNGKey(9)
        state["step"] = jnp.asarray(1) + state["step"]
        state["log"]["losses"].append(jnp.float32(0.1))
        state["last"].append(jnp.arange(2))
        state["ema"] += state["drawn"].random()
    state["best"] = state["opt"]
    return state


state = begin()
before = kept(state)
trained(state)
later = begin()
losses, opt = later["log"]["losses"], later["opt"]
now = resumed(before.read(), kept(later))
drawn = [one.pop("drawn").random() for one in (state, now)]
held["all of a state"] = same(state, now)
held["in place"] = now is later and later["log"]["losses"] is losses and len(losses) == 2
held["a generator"] = drawn[0] == drawn[1]
held["a tree that was added"] = type(now["best"]) is type(opt) and same(now["best"], state["opt"])
held["weak types"] = now["step"].weak_type and not now["raw"].weak_type
held["later than the first values"] = not same(now["params"], begin()["params"])


def shared():
    log = [jnp.zeros(1)]
    return {"params": jnp.ones(2), "log": log, "logs": [log, [0]], "rows": [[0]] * 2}


one, other = shared(), shared()
before = kept(one)
one["log"].append(jnp.ones(1))
one["logs"][1] = one["log"]
one["rows"][1] = [7]
now = resumed(before.read(), kept(other))
held["one list in several places"] = now["log"] is now["logs"][0] is now["logs"][1] and len(now["log"]) == 2
held["lists apart"] = now["rows"] == [[0], [7]]

for name, kind in {
    name: getattr(jnp, name)
    for name in ("float16", "bfloat16", "int4", "int8", "uint32", "bool", "complex64", "float8_e4m3fn")
}.items():
    one = {
        "a": jnp.arange(6).reshape(2, 3).astype(kind).T,
        "empty": jnp.zeros((0, 3), kind),
        "scalar": jnp.ones((), kind),
    }
    kept_one, other = kept(one), {key: jnp.zeros_like(value) for key, value in one.items()}
    held["arrays of " + name] = same(one, resumed(kept_one.read(), kept(other)))

mesh = jax.sharding.Mesh(np.array(jax.devices()), "x")
spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))


def of_devices(times):
    one = {
        "spread": jax.device_put(jnp.arange(8.0) * times, spread),
        "third": jax.device_put(jnp.ones(2) * times, jax.devices()[2]),
    }
    with jax.default_device(jax.devices()[1]):
        one["free"] = jnp.ones(3) * times
    return {**one, "key": jax.device_put(jax.random.key(times), jax.devices()[2])}


one = of_devices(1)
before = kept(one)
one.update(of_devices(7))
held["devices and shards"] = (
    same(one, resumed(before.read(), kept(of_devices(1)))) and len(one["spread"].devices()) == 4
)

for name, other in {
    "another shape": begin(4), "no key": {key: one for key, one in begin().items() if key != "key"},
    "another type": {**begin(), "params": jax.tree.map(lambda one: one.astype("float32"), begin()["params"])},
    "another optimizer": {**begin(), "opt": optax.sgd(1e-3).init(begin()["params"])},
}.items():  # fmt: skip
    held[name + " does not fit"] = raises(lambda: resumed(kept(trained(begin())).read(), kept(other)), "fit")  # noqa: B023
one = {"opt": optax.TraceState({"a": jnp.ones(2)})}
other = {"opt": optax.ScaleByRssState({"a": jnp.ones(2)})}
held["another class does not fit"] = not kept(other).fits(stored(kept(one).read()))
held["the same fits"] = kept(begin()).fits(stored(kept(begin()).read()))


def flax_state(rate, seed=0):
    net = linen.Dense(3)
    return TrainState.create(
        apply_fn=net.apply, params=net.init(jax.random.key(seed), jnp.ones((1, 2))), tx=optax.sgd(rate)
    )


def both(times=0):
    """Return two trees that look alike and compute with different rates."""
    found = {"slow": flax_state(0.1), "fast": flax_state(10.0, 1)}
    for _ in range(times):
        found = {
            name: one.apply_gradients(grads=jax.tree.map(jnp.ones_like, one.params)) for name, one in found.items()
        }
    return found


one = both()
before = kept(one)
for _ in range(2):
    one.update(
        {name: each.apply_gradients(grads=jax.tree.map(jnp.ones_like, each.params)) for name, each in one.items()}
    )
now = resumed(before.read(), kept(both()))
more = [
    {name: each.apply_gradients(grads=jax.tree.map(jnp.ones_like, each.params)).params for name, each in of.items()}
    for of in (one, now)
]
held["trees that look alike"] = same(*more)


class Layer:
    """A tree whose function is a leaf, as in Equinox: the structure does not tell it."""

    def __init__(self, weight, activation):
        self.weight, self.activation = weight, activation


jax.tree_util.register_pytree_node(
    Layer, lambda one: ((one.weight, one.activation), None), lambda _, both: Layer(*both)
)
one = {"first": Layer(jnp.ones(2), jnp.tanh), "second": Layer(jnp.ones(2), jnp.sin)}
later = {"first": Layer(jnp.ones(2), jnp.tanh), "second": Layer(jnp.ones(2), jnp.sin)}
before = kept(one)
one["second"] = Layer(jnp.zeros(2), jnp.sin)
now = resumed(before.read(), kept(later))
held["functions that are leaves"] = [each.activation for each in now.values()] == [jnp.tanh, jnp.sin]
held["weights beside them"] = not now["second"].weight.any()

net = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-2), wrt=nnx.Param)
before = [kept(net).read(), kept(optimizer).read(), kept({"net": net}).read()]
before = [stored(one) for one in before]
scale = net.scale
net(jnp.arange(8.0).reshape(2, 4))
optimizer.update(net, nnx.grad(lambda net: net(jnp.ones((2, 4))).sum() + net.scale.sum())(net))
changed = [bool((net.scale[...] != 1).any()), bool((net.mean[...] != 0).any()), int(optimizer.step[...])]
kept(net).write(before[0])
kept(optimizer).write(before[1])
held["objects of nnx in place"] = net.scale is scale and changed == [True, True, 1]
held["objects of nnx"] = (
    bool((net.scale[...] == 1).all() and (net.mean[...] == 0).all()) and int(optimizer.step[...]) == 0
)
net.scale[...] += 1
whole = {"net": net}
kept(whole).write(before[2])
held["objects of nnx in a dict"] = whole["net"] is net and bool((net.scale[...] == 1).all())

one = {"w": jnp.ones(3)}
look = kept(one)
held["nothing has changed"] = look.is_unchanged
one["w"] = one["w"] + 1
held["an array has changed"] = not look.is_unchanged
held["an array is refused"] = raises(lambda: kept(jnp.ones(3)), "hand over a dict")
held["a tree is refused"] = raises(lambda: kept(TX.init({"a": jnp.ones(2)})), "hand over a dict")
one = {"opt": optax.EmptyState(), "a": jnp.ones(2)}
look = kept(one)
one["opt"] = TX.init({"a": jnp.ones(2)})
held["a tree that was not handed over is refused"] = raises(look.read, "handed over")
print(json.dumps({name: bool(one) for name, one in held.items()}))

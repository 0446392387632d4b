"""Stateful things of JAX, and of libraries on it."""

from __future__ import annotations

from .things import Thing

_J = "import jax"
_ADAM = """import jax
import optax
def adam():
    rule = optax.adam(0.1)
    value = jax.numpy.ones(2)
    return [rule, value, rule.init(value)]
def update(held, n):
    changes, held[2] = held[0].update(jax.numpy.full(2, n + 1.0), held[2])
    held[1] = optax.apply_updates(held[1], changes)
"""

_ALL = (
    Thing("jax.Array", "jax.numpy.zeros(3)", "thing = thing.at[n % 3].add(n + 1.0)", "thing.tolist()", _J),
    Thing("jax.Array-bfloat16", "jax.numpy.zeros(2, 'bfloat16')", "thing = thing * 0.5 + n", "thing.astype('float32').tolist()", _J),
    Thing("jax.Array-list", "[jax.numpy.zeros(2), jax.numpy.ones(1)]", "thing[n % 2] = thing[n % 2] * 0.5 + n", "[one.tolist() for one in thing]", _J),
    Thing("jax.pytree", "{'a': jax.numpy.zeros(2), 'b': (jax.numpy.ones(1), None)}", "thing = jax.tree_util.tree_map(lambda one: one * 0.5 + n, thing)", "[one.tolist() for one in jax.tree_util.tree_leaves(thing)]", _J),
    Thing("jax.PRNGKey", "jax.random.PRNGKey(3)", "thing = jax.random.split(thing)[0]", "thing.tolist()", _J),
    Thing("jax.random.key", "jax.random.key(3)", "thing = jax.random.fold_in(thing, n)", "jax.random.key_data(thing).tolist()", _J),
    Thing("jax.random.key-list", "[jax.random.key(3), 0.0]", "thing[0] = jax.random.fold_in(thing[0], n); thing[1] += float(jax.random.normal(thing[0]))", "thing[1]", _J),
    Thing("jax.tree_util.Partial", "jax.tree_util.Partial(max, 0, 0)", "thing = jax.tree_util.Partial(max, *thing.args[-2:], n + thing())", "list(thing.args)", _J),
    Thing("jax.jit-closure", "jitted()", "thing[1] = float(thing[0](float(n), thing[1]))", "thing[1]", f"{_J}\ndef jitted():\n    return [jax.jit(lambda n, value: value * 0.5 + n), 0.0]\n"),
    Thing("jax.ShapeDtypeStruct", "jax.ShapeDtypeStruct((1,), 'float32')", "thing = jax.ShapeDtypeStruct((*thing.shape[-3:], n), 'float32')", "list(thing.shape)", _J),
)  # fmt: skip

THINGS = (
    *(one._replace(needs="jax") for one in _ALL),
    Thing("optax.adam", "adam()", "update(thing, n)", "thing[1].tolist()", _ADAM, "jax optax"),
    Thing("flax.FrozenDict", "flax.core.FrozenDict({'n': 0})", "thing = thing.copy({'n': thing['n'] * 2 + n})", "thing['n']", "import flax.core", "jax flax"),
    Thing("flax.nnx.Variable", "flax.nnx.Variable(jax.numpy.zeros(2))", "thing.value = thing.value * 0.5 + n", "thing.value.tolist()", "import flax.nnx\nimport jax", "jax flax"),
    Thing("flax.nnx.Rngs", "[flax.nnx.Rngs(3), 0.0]", "thing[1] += float(jax.random.normal(thing[0].params()))", "thing[1]", "import flax.nnx\nimport jax", "jax flax"),
    Thing("equinox.Module", "Held(jax.numpy.zeros(2))", "thing = Held(thing.value * 0.5 + n)", "thing.value.tolist()", "import equinox\nimport jax\nclass Held(equinox.Module):\n    value: jax.Array\n", "jax equinox"),
)  # fmt: skip

# ruff: noqa: NPY002  the global generator is what is tested
"""A loop of JAX with shuffle, dropout and a schedule; `of=optax`, `linen`, `equinox` or `nnx`: what it trains with.

`donated=1`: the step ends the arrays that it gets; `other=1`: later attempts have another layer; `aside=1`: new values
are not assigned to what was handed over.
"""

import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tracked

import stallguard

options = dict(word.split("=") for word in sys.argv[3:])
of, wide = options["of"], 8 if "other" in options and tracked.attempt else 16
donated = {"donate_argnums": 0} if "donated" in options else {}
np.random.seed(2)
X = np.random.randn(96, 8).astype("float32")
TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-2, 60)))


def dropped(hidden, key):
    return jnp.where(jax.random.bernoulli(key, 0.7, hidden.shape), hidden / 0.7, 0)


def cost(out, labels):
    return optax.softmax_cross_entropy_with_integer_labels(out.astype("float32"), labels).mean()


def of_optax():
    """Parameters in bfloat16 and float32, a key with a type, a count with a weak type."""
    first, second = jax.random.split(jax.random.key(1))
    params = {
        "in": jax.random.normal(first, (8, wide), "bfloat16"),
        "out": [jax.random.normal(second, (wide, 3)), jnp.zeros(3)],
    }

    def loss_of(params, x, y, key):
        hidden = dropped(jax.nn.gelu(x.astype("bfloat16") @ params["in"]), key)
        return cost(hidden.astype("float32") @ params["out"][0] + params["out"][1], y)

    def step(state, x, y):
        key, now = jax.random.split(state["key"])
        loss, slopes = jax.value_and_grad(loss_of)(state["params"], x, y, now)
        updates, opt = TX.update(slopes, state["opt"], state["params"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt, "key": key, "seen": state["seen"] + 1}, loss

    return {"params": params, "opt": TX.init(params), "key": jax.random.key(7), "seen": 0}, step


def of_linen():
    """Flax' TrainState, with a key without a type in it."""
    from flax import linen
    from flax.training.train_state import TrainState

    class Keyed(TrainState):
        key: jax.Array

    class Net(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(3)(linen.Dropout(0.3, deterministic=False)(linen.gelu(linen.Dense(wide)(x))))

    net = Net()
    params = net.init({"params": jax.random.PRNGKey(1), "dropout": jax.random.PRNGKey(2)}, X[:1])
    train = Keyed.create(apply_fn=net.apply, params=params, tx=TX, key=jax.random.PRNGKey(3))

    def step(state, x, y):
        key, now = jax.random.split(state["train"].key)
        loss, slopes = jax.value_and_grad(
            lambda params: cost(state["train"].apply_fn(params, x, rngs={"dropout": now}), y)
        )(state["train"].params)
        return {"train": state["train"].apply_gradients(grads=slopes, key=key)}, loss

    return {"train": train}, step


def of_equinox():
    import equinox

    net = equinox.nn.MLP(8, 3, wide, 1, key=jax.random.key(1))
    state = {"net": net, "opt": TX.init(equinox.filter(net, equinox.is_array)), "key": jax.random.key(7)}

    def step(state, x, y):
        key, now = jax.random.split(state["key"])

        def loss_of(net):
            return cost(jax.vmap(net)(dropped(x, now)), y)

        loss, slopes = equinox.filter_value_and_grad(loss_of)(state["net"])
        updates, opt = TX.update(slopes, state["opt"], equinox.filter(state["net"], equinox.is_array))
        return {"net": equinox.apply_updates(state["net"], updates), "opt": opt, "key": key}, loss

    return state, step


def of_nnx():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layers = nnx.List([nnx.Linear(8, wide, rngs=rngs), nnx.BatchNorm(wide, rngs=rngs)])
            self.dropout, self.head = nnx.Dropout(0.3, rngs=rngs), nnx.Linear(wide, 3, rngs=rngs)

        def __call__(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(self.dropout(nnx.gelu(x)))

    net = Net(nnx.Rngs(1))
    return net, nnx.Optimizer(net, TX, wrt=nnx.Param)


def batches_of_an_epoch():
    """Yield the batches in an order that is drawn, with noise that is drawn from the state's own key."""
    order = np.random.permutation(96)
    if "key" in state:
        order = np.asarray(jax.random.permutation(state["key"], order))
    for start in range(0, 96, 8):
        rows = order[start : start + 8]
        yield X[rows] + 0.1 * np.random.randn(8, 8).astype("float32"), rows % 3


if of == "nnx":
    from flax import nnx

    net, optimizer = of_nnx()
    state, handed = {}, (net, optimizer)

    @nnx.jit
    def step_nnx(net, optimizer, x, y):
        loss, slopes = nnx.value_and_grad(lambda net: cost(net(x), y))(net)
        optimizer.update(net, slopes)
        return loss

else:
    state, own = {"optax": of_optax, "linen": of_linen, "equinox": of_equinox}[of]()
    handed = (state,)
    if of == "equinox":
        import equinox

        step = equinox.filter_jit(own)
    else:
        step = jax.jit(own, **donated)
log, current = {"losses": [], "best": None}, dict(state) if "aside" in options else state
for epoch, batches in stallguard.track(*handed, log, batches_of_an_epoch, epochs=3):
    tracked.watch_saves() if epoch == 0 or tracked.attempt else None
    for number, (x, y) in batches:
        if of == "nnx":
            loss = step_nnx(net, optimizer, x, y)
        else:
            new, loss = step(current, x, y)
            current.update(new)
        tracked.writes(epoch, number)
        tracked.passes("step")
        log["losses"].append(loss)
    tracked.passes("validation")
    log["best"] = min(log["losses"][-12:])
held = jax.tree.leaves([nnx.state(one) for one in handed] if of == "nnx" else state)
digest = hashlib.sha256()
for one in [*held, *log["losses"]]:
    if callable(one):  # an activation of Equinox
        continue
    digest.update(repr([getattr(one, name, "") for name in ("dtype", "weak_type")]).encode())
    is_key = hasattr(one, "dtype") and jax.dtypes.issubdtype(one.dtype, jax.dtypes.prng_key)
    digest.update(np.asarray(jax.random.key_data(one) if is_key else one).tobytes())
print(digest.hexdigest(), float(log["best"]), tracked.written.read_text().split())

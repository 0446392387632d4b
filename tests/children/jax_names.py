"""Trains with JAX in several ways; prints with which lines each loop would be resumed, as JSON."""

import json
import sys

import jax
import jax.numpy as jnp
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

PROBE = sys.modules["_stallguard_probe"].probe
PROBE.sender.names = None  # its thread finds objects of flax.nnx by their class, if it looks while they train
NAMES = next(
    cell.cell_contents._names
    for cell in optax.apply_updates.__closure__
    if type(getattr(cell.cell_contents, "_names", None)).__name__ == "StateNames"
)
TX = optax.adam(1e-2)
X = jnp.ones((8, 4))


def loss_of(params, x):
    return jnp.mean((x @ params["w"] + params["b"]) ** 2)


def update(params, opt, x, key=None):
    slopes = jax.grad(loss_of)(params, x)
    updates, opt = TX.update(slopes, opt, params)
    return optax.apply_updates(params, updates), opt


def fresh():
    params = {"w": jnp.ones((4, 1)), "b": jnp.zeros(1)}
    return params, TX.init(params)


def compiled():
    (params, opt_state), rng, batch = fresh(), jax.random.key(0), {"x": X}
    step = jax.jit(update)
    for _ in range(2):
        rng, now = jax.random.split(rng)
        params, opt_state = step(params, opt_state, batch["x"], now)


def in_a_function():
    weights, moments = fresh()

    def epoch(inner, more):
        return jax.jit(update)(inner, more, X)

    weights, moments = epoch(weights, moments)


def not_compiled():
    params, opt = fresh()
    ema = jax.tree.map(lambda one: one, params)
    slopes = jax.grad(loss_of)(params, X)
    updates, opt = TX.update(slopes, opt, params)
    params = optax.apply_updates(params, updates)
    return ema


def train_state():
    net = linen.Dense(1)
    state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), X), tx=TX)

    @jax.jit
    def step(state, batch):
        slopes = jax.grad(lambda params: jnp.mean(state.apply_fn(params, batch["x"]) ** 2))(state.params)
        return state.apply_gradients(grads=slopes)

    batch = {"x": X}
    state = step(state, batch)


def whole():
    train = dict(zip(("params", "opt"), fresh(), strict=True))

    @jax.jit
    def step(train, x):
        return dict(zip(("params", "opt"), update(train["params"], train["opt"], x), strict=True))

    train = step(train, X)


def statistics():
    (params, opt), batch_stats, batch = fresh(), {"mean": jnp.zeros(3)}, {"x": X}
    step = jax.jit(lambda params, opt, stats, batch: (*update(params, opt, batch["x"]), stats))
    params, opt, batch_stats = step(params, opt, batch_stats, batch)


def of_nnx():
    net = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, TX, wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer, x):
        optimizer.update(net, nnx.grad(lambda net: jnp.mean(net(x) ** 2))(net))

    step(net, optimizer, X)


class Attributes:
    def __init__(self):
        self.params, self.opt = fresh()

    def train(self):
        def step(*words):
            return update(*words)

        self.params, self.opt = jax.jit(step)(self.params, self.opt, X)


def lines_of(loop):
    """Return the lines that are noted while a loop trains, as if nothing had been noted yet."""
    found = []
    NAMES.left = type(NAMES)(PROBE.context).left
    PROBE.mail.note, before = (
        lambda kind, text, facts: found.append(facts["lines"]) if kind == "loop" else None,
        PROBE.mail.note,
    )
    try:
        loop()
    finally:
        PROBE.mail.note = before
    return found[-1] if found else None


LOOPS = {
    "compiled": compiled, "in_a_function": in_a_function, "not_compiled": not_compiled, "train_state": train_state,
    "whole": whole, "statistics": statistics, "nnx": of_nnx, "attributes": lambda: Attributes().train(),
}  # fmt: skip
print(json.dumps({name: lines_of(loop) for name, loop in LOOPS.items()}))

"""Trains with JAX in the ways that its users do; prints what the probe counted each time, as JSON."""

import json
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen, nnx
from flax.training.train_state import TrainState

PROBE = getattr(sys.modules.get("_stallguard_probe"), "probe", None)
STEPS = 20
TX = optax.adam(1e-2)
X = jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)), "float32")
compiled = []  # names of what XLA compiles


def fresh():
    """Return parameters and the state of their optimizer, always the same."""
    params = {"w": jnp.ones((4, 1)) / 2, "b": jnp.zeros(1)}
    return params, TX.init(params)


def loss_of(params, x):
    return jnp.mean((x @ params["w"] + params["b"] - x[:, :1]) ** 2)


def update(params, state, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = TX.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def loop(step, steps=STEPS):
    params, state = fresh()
    losses = []
    for _ in range(steps):
        params, state, loss = step(params, state, X)
        losses.append(float(loss))
    return losses


def own():
    """A function of its own for each scenario, which JAX has not traced."""

    def step(params, state, x):
        return update(params, state, x)

    return step


def jitted():
    return loop(jax.jit(own()))


def donated():
    return loop(jax.jit(own(), donate_argnums=(0, 1)))


def eager():
    return loop(own())


def in_epochs():
    """The loop is in a function that is called each epoch, after a first call in another one."""
    step = jax.jit(own())
    step(*fresh(), X)

    def epoch():
        return loop(step, 5)

    return [epoch() for _ in range(3)] + [loop(step, 4)]


def jitted_anew():
    """The same function is given to jax.jit in each step."""
    given = own()

    def anew(*args):
        step = jax.jit(given)
        return step(*args)

    return loop(anew)


def other_shapes():
    """A second trace in the midst; another function is called at the same place."""
    step = jax.jit(own())
    params, state = fresh()
    losses = []
    for at in range(STEPS):
        for run in (lambda *args: args, step):
            params, state, *more = run(params, state, X[: 4 + at // 10])
        losses.append(float(more[0]))
    return losses


def of_a_class():
    """A method that is compiled, one that a helper calls, also with `*`, and what functools.partial made."""

    class Trainer:
        @partial(jax.jit, static_argnums=0)
        def method(self, *args):
            return update(*args)

        def train(self, params, state, x):
            return self.method(params, state, x)

        def spread(self, *held):
            try:
                self.method(held[0], held[1], jnp.ones((3, 3)))  # of another shape: it fails, and is no batch
            except TypeError:
                return self.method(*held)

    return loop(Trainer().train, 5) + loop(Trainer().spread, 5) + loop(partial(jax.jit(own())), 10)


def scanned():
    """Many updates are one call, and a step in the trace of another function is none."""
    step = jax.jit(own())
    loop(step, 1)

    @jax.jit
    def epoch(params, state):
        def body(held, x):
            params, state, loss = step(*held, x)
            return (params, state), loss

        return jax.lax.scan(body, (params, state), jnp.stack([X] * 5))

    held, found = fresh(), []
    for _ in range(STEPS - 1):
        held, losses = epoch(*held)
        found += losses.tolist()
    return found


def accumulated():
    tx = optax.MultiSteps(TX, 4)

    def step(params, state, x):
        loss, grads = jax.value_and_grad(loss_of)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    step, params, losses = jax.jit(step), fresh()[0], []
    state = tx.init(params)
    for _ in range(STEPS):
        params, state, loss = step(params, state, X)
        losses.append(float(loss))
    return losses


def lowered_before():
    """The trace of the step is made before its first call."""
    step = jax.jit(own())
    step.lower(*fresh(), X)
    return loop(step)


def compiled_before():
    """The loop calls what was compiled before; another function is called in the same way."""
    step = jax.jit(own()).lower(*fresh(), X).compile()
    evaluate = jax.jit(loss_of).lower(fresh()[0], X).compile()
    evaluate(fresh()[0], X)
    return loop(step)


def mapped():
    step = jax.pmap(own())
    params, state = jax.tree.map(lambda one: jnp.stack([one]), fresh())
    losses = []
    for _ in range(STEPS):
        params, state, loss = step(params, state, X[None])
        losses.append(float(loss[0]))
    return losses


def flax_linen():
    net = linen.Dense(1)
    state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), X), tx=TX)

    @jax.jit
    def step(state, x):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(state.apply_fn(p, x) ** 2))(state.params)
        return state.apply_gradients(grads=grads), loss

    losses = []
    for _ in range(STEPS):
        state, loss = step(state, X)
        losses.append(float(loss))
    return losses


def flax_nnx():
    net = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(net, TX, wrt=nnx.Param)

    @nnx.jit
    def step(net, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda net: jnp.mean(net(x) ** 2))(net)
        optimizer.update(net, grads)
        return loss

    return [float(step(net, optimizer, X)) for _ in range(STEPS)]


def evaluated():
    """Functions without an update, one of which fails."""
    evaluate = jax.jit(loss_of)
    losses = [float(evaluate(fresh()[0], X)) for _ in range(STEPS)]
    jax.eval_shape(update, *fresh(), X)
    return losses


def failing():
    """A call that raises is no batch."""
    step = jax.jit(own())
    losses = loop(step, 5)
    for _ in range(3):
        try:
            step(*fresh(), None)
        except TypeError:
            losses.append("TypeError")
    return losses


def keras_stateless():
    import keras

    net = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")])
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(net.trainable_variables)

    @jax.jit
    def step(trained, state, x):
        loss, grads = jax.value_and_grad(lambda t: jnp.mean(net.stateless_call(t, [], x)[0] ** 2))(trained)
        return *optimizer.stateless_apply(state, grads, trained), loss

    trained, state = ([one.value for one in of.variables] for of in (net, optimizer))
    losses = []
    for _ in range(STEPS):
        trained, state, loss = step(trained, state, X)
        losses.append(float(loss))
    return losses


def equinox_jitted():
    import equinox

    net = equinox.nn.Linear(4, 1, key=jax.random.key(0))
    state = TX.init(equinox.filter(net, equinox.is_array))

    @equinox.filter_jit
    def step(net, state, x):
        loss, grads = equinox.filter_value_and_grad(lambda net: jnp.mean(jax.vmap(net)(x) ** 2))(net)
        updates, state = TX.update(grads, state)
        return equinox.apply_updates(net, updates), state, loss

    losses = []
    for _ in range(STEPS):
        net, state, loss = step(net, state, X)
        losses.append(float(loss))
    return losses


def by_hand():
    """A script that was written before such loops were counted."""
    import stallguard

    step = jax.jit(own())

    def counted(*args):
        found = step(*args)
        stallguard.beat()
        return found

    return loop(counted)


def run(name):
    """Return what a scenario counted, what it computed, and how much XLA compiled."""
    field = PROBE.context.get if PROBE else lambda _: 0
    before = field("beats")
    compiled.clear()
    result = repr(globals()[name]())  # of a float, all its bits
    counted = {"beats": field("beats") - before, "checks": field("checks"), "source": field("source")}
    return {"result": result, "compiled": len(compiled), **counted}


jax.monitoring.register_event_duration_secs_listener(
    lambda name, _seconds, **_: compiled.append(name) if "backend_compile" in name else None
)
print(json.dumps({name: run(name) for name in sys.argv[1:]}))

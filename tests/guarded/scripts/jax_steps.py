"""A JAX training with optax that waits once for a lock that is never released, in the middle of its loop.

The argument is a file that remembers that it has waited: a second start goes through.
"""

import sys
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

memory = Path(sys.argv[1])
AT, STEPS = 70, 90
lock = threading.Lock()
optimizer = optax.adam(1e-2)


def loss_of(params, x):
    return jnp.mean((x @ params) ** 2)


@jax.jit
def step(params, state, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


params = jnp.ones((4, 1))
state = optimizer.init(params)
for at in range(STEPS):
    time.sleep(0.05)
    params, state, loss = step(params, state, jnp.ones((8, 4)) * at)
    if at == AT and not memory.exists():
        memory.write_text("waited")
        lock.acquire()
        lock.acquire()  # named
    float(loss)
print("trained")

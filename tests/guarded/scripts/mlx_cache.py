"""An MLX training whose cache fills the memory that the process can have: mlx_cache.py PAUSE.

It prints the cache before and after it, and what it came to.
"""

import hashlib
import sys
import time

import limited
import mlx.core as mx
import mlx.optimizers as optim
from mlx import nn
from mlx.utils import tree_flatten

mx.set_cache_limit(2 << 30)
mx.random.seed(1)
net, optimizer = nn.Linear(4, 1), optim.Adam(1e-2)
graded = nn.value_and_grad(net, lambda net, x: (net(x) ** 2).mean())


fill = [mx.ones((250_000, 4)) + at for at in range(150)]  # 600 MB
mx.eval(fill)
del fill
held = mx.get_cache_memory()
limited.leave(limited.data() // 20)
for at in range(60):
    loss, grads = graded(net, mx.random.normal((8, 4)) + at % 7)
    optimizer.update(net, grads)
    mx.eval(net.state, optimizer.state)
    time.sleep(float(sys.argv[1]))
digest = hashlib.sha256(b"".join(bytes(memoryview(one)) for _, one in sorted(tree_flatten(net.parameters()))))
print(held, mx.get_cache_memory(), digest.hexdigest())

"""Stateful things of MLX."""

from __future__ import annotations

from .things import Thing

_M = "import mlx.core as mx"
_NN = "import mlx.core as mx\nfrom mlx import nn, optimizers"
_OWN = f"""{_NN}
class OwnModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.total, self.mean = 0, mx.zeros(2)
    def count(self, n):
        self.total = self.total * 2 + n
        self.mean = self.mean * 0.5 + n
"""
_STEP = f"""{_NN}
def stepped_mlx(kind, **options):
    net = nn.Linear(2, 1)
    net.update({{"weight": mx.ones((1, 2)), "bias": mx.zeros(1)}})
    return [net, kind(**options)]
def step_mlx(net, optimizer, n):
    of = nn.value_and_grad(net, lambda net, x: ((net(x) - 1.0) ** 2).sum())
    optimizer.update(net, of(net, mx.full((1, 2), float(n % 5)))[1])
    mx.eval(net.parameters(), optimizer.state)
"""

THINGS = tuple(
    one._replace(needs="mlx.core mlx.nn mlx.optimizers")
    for one in (
        Thing("mx.array", "mx.zeros(3)", "thing[n % 3] = thing[n % 3] + n + 1", "thing.tolist()", _M),
        Thing("mx.array-rebound", "mx.zeros(2)", "thing = thing * 0.5 + n", "thing.tolist()", _M),
        Thing("mx.array-bfloat16", "mx.zeros(2, mx.bfloat16)", "thing = thing * 0.5 + n", "thing.tolist()", _M),
        Thing("mx.array-list", "[mx.zeros(2), mx.ones(1)]", "thing[n % 2] = thing[n % 2] * 0.5 + n", "[one.tolist() for one in thing]", _M),
        Thing("mx.random", "[0.0]", "thing[0] += mx.random.uniform().item() * (n + 1)", "thing", _M),
        Thing("mx.random.key", "mx.random.key(3)", "thing = mx.random.split(thing)[0]", "thing.tolist()", _M),
        Thing("mx.random.key-list", "[mx.random.key(3), 0.0]", "thing[0] = mx.random.split(thing[0])[0]; thing[1] += mx.random.uniform(key=thing[0]).item()", "thing[1]", _M),
        Thing("mlx.Adam", "stepped_mlx(optimizers.Adam, learning_rate=0.01)", "step_mlx(*thing, n)", "thing[0].weight.tolist()", _STEP),
        Thing("mlx.schedule", "stepped_mlx(optimizers.SGD, learning_rate=optimizers.cosine_decay(0.1, 20))", "step_mlx(*thing, n)", "[thing[0].weight.tolist(), thing[1].learning_rate.item()]", _STEP),
        Thing("mlx.Module-own", "OwnModule()", "thing.count(n)", "[thing.total, thing.mean.tolist()]", _OWN),
        Thing("mlx.BatchNorm", "nn.BatchNorm(2)", "thing(mx.full((2, 2), float(n)))", "thing.running_mean.tolist()", _NN),
    )
)  # fmt: skip

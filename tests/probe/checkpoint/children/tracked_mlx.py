"""What of MLX's objects comes back from a checkpoint: prints the names of the checks, and whether each held."""

import json
import sys

import mlx.core as mx
from mlx import nn, optimizers

from stallguard.probe.checkpoint import random_state
from stallguard.probe.checkpoint.tracked_mlx import is_all_arrays
from stallguard.probe.checkpoint.tracked_objects import Packed, kept, unpacked

held = {"without numpy": "numpy" not in sys.modules}


def stored(state):
    """Return a state after a way through JSON and bytes."""
    packed = Packed()
    facts, blobs = packed.facts(packed.code(state))
    return unpacked(json.loads(json.dumps(facts)), [memoryview(bytes(one)) for one in blobs])


class Net(nn.Module):
    """A module with a list of parts and an array that is no parameter."""

    def __init__(self, width=2):
        super().__init__()
        self.layers = [nn.Linear(2, width), nn.BatchNorm(width)]
        self._hidden = mx.ones(3)


net = Net()
net.layers[0].freeze()
net.eval()
captured = net.state
before, weight = stored(kept(net).read()), mx.array(net.layers[0].weight)
net.layers[0].weight = net.layers[0].weight + 1
net._hidden = mx.zeros(3)
net.unfreeze()
net.train()
kept(net).write(before)
held["parameters"] = mx.array_equal(net.layers[0].weight, weight)
held["containers in place"] = captured["layers"][0] is net.layers[0] and mx.array_equal(
    captured["layers"][0]["weight"], weight
)
held["arrays that are no parameters"] = net._hidden.sum().item() == 3
held["frozen parts"] = "weight" not in net.layers[0].trainable_parameters()
held["mode"] = not net.training and not net.layers[1].training
held["another shape does not fit"] = kept(net).fits(before) and not kept(Net(3)).fits(before)

optimizer = optimizers.Adam(optimizers.cosine_decay(1e-2, 10))
net.unfreeze()
parameters = net.trainable_parameters()
fresh = optimizers.Adam(optimizers.cosine_decay(1e-2, 10))
container = fresh.state
optimizer.update(net, parameters)
kept(fresh).write(stored(kept(optimizer).read()))
held["optimizer in place"] = fresh.state is container
held["optimizer"] = fresh.step.item() == 1 and fresh.learning_rate.item() == optimizer.learning_rate.item()
fresh.apply_gradients(parameters, parameters)
held["optimizer is not initialized again"] = fresh.step.item() == 2

for kind in (mx.bfloat16, mx.float16, mx.int64, mx.bool_, mx.complex64):
    one = {"a": mx.ones((2, 3)).astype(kind).T, "empty": mx.zeros((0, 3), kind), "scalar": mx.array(1).astype(kind)}
    back = stored(one)
    held["arrays of " + str(kind)] = all(
        mx.array_equal(one[key], back[key]) and one[key].dtype == back[key].dtype for key in one
    )


class Rows(list):
    """A list of the script's, which can have attributes."""


held["what holds arrays alone"] = is_all_arrays([mx.ones(1), {"a": mx.ones(1)}])
held["what can hold other state"] = not any(map(is_all_arrays, ([], Rows([mx.ones(1)]), [mx.ones(1), 1])))
mx.random.seed(7)
mx.random.normal((2,))
before = random_state.capture()["mlx"]
drawn = mx.random.normal((4,))
random_state.restore({"mlx": before})
held["the global generator"] = mx.array_equal(mx.random.normal((4,)), drawn)
print(json.dumps({name: bool(one) for name, one in held.items()}))

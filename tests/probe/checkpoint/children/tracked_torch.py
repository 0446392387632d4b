"""What of torch's objects comes back from a checkpoint: prints the names of the checks, and whether each held."""

import json

import torch
from torch import nn

from stallguard.probe.checkpoint import tracked_torch
from stallguard.probe.checkpoint.tracked_objects import Packed, kept, unpacked

held = {}


def stored(value):
    """Return the state of an object after a way through JSON and bytes."""
    packed = Packed()
    facts, blobs = packed.facts(packed.code(kept(value).read()))
    return unpacked(json.loads(json.dumps(facts)), [memoryview(bytes(one)) for one in blobs])


def refused(value):
    """Return whether an object is refused."""
    try:
        Packed(dry=True).code(kept(value).read())
    except Exception:
        return True
    return False


class Part(nn.Module):
    """A module with all that a state_dict lacks."""

    def __init__(self, width=3):
        super().__init__()
        self.inner = nn.Linear(width, 2)
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.calls, self.mean, self.own = 0, torch.zeros(1), torch.Generator().manual_seed(1)


part = Part()
address = part.inner.weight.data_ptr()
part.inner(torch.ones(1, 3)).sum().backward()
part.inner.bias.requires_grad_(False)
part.eval()
before, drawn = stored(part), torch.rand(3, generator=part.own)
gradient = part.inner.weight.grad.clone()
weight = part.inner.weight.detach().clone()
with torch.no_grad():
    part.inner.weight.add_(1)
part.hidden.add_(1)
part.calls, part.mean = 5, torch.ones(1)
part.train()
part.inner.bias.requires_grad_(True)
part.zero_grad()
kept(part).write(before)
held["parameters in place"] = torch.equal(part.inner.weight, weight) and part.inner.weight.data_ptr() == address
held["gradients"] = torch.equal(part.inner.weight.grad, gradient)
held["frozen parameters"] = not part.inner.bias.requires_grad
held["buffers that are not persistent"] = part.hidden.sum() == 0
held["attributes"] = part.calls == 0 and part.mean.sum() == 0
held["mode"] = not part.training and not part.inner.training
held["own generator"] = torch.equal(torch.rand(3, generator=part.own), drawn)
held["another shape does not fit"] = kept(part).fits(before) and not kept(Part(4)).fits(before)

for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.complex64):
    one = {
        "a": torch.ones(2, 3).to(dtype).t(),
        "empty": torch.empty(0, 3, dtype=dtype),
        "scalar": torch.ones((), dtype=dtype),
    }
    back = stored(one)
    held["tensors of " + str(dtype)] = all(
        torch.equal(one[key], back[key]) and one[key].dtype == back[key].dtype for key in one
    )

low = nn.Linear(3, 3).to(torch.bfloat16)
optimizer = torch.optim.Adam(low.parameters())
low(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
optimizer.step()
state = optimizer.state[low.weight]
state["exp_avg"] = state["exp_avg"].float() + 1e-6
exact = state["exp_avg"].clone()
before = stored(optimizer)
optimizer.state.clear()
kept(optimizer).write(before)
found = optimizer.state[low.weight]["exp_avg"]
held["optimizer in its own types"] = found.dtype == torch.float32 and torch.equal(found, exact)
held["optimizer of other groups does not fit"] = not kept(
    torch.optim.Adam(nn.Linear(3, 3, bias=False).parameters())
).fits(before)

held["sparse tensors are refused"] = refused({"a": torch.eye(2).to_sparse()})
held["lazy modules are refused"] = refused(nn.LazyLinear(2))
held["the loss of a step is no loader"] = not tracked_torch.is_loader(part)
print(json.dumps({name: bool(one) for name, one in held.items()}))

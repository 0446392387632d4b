"""Stateful things of PyTorch."""

from __future__ import annotations

from .things import Thing

_T = "import torch\ntorch.manual_seed(5)"  # Keras on JAX does not seed it
_STEP = f"""{_T}
def step(net, optimizer, n):
    with torch.enable_grad():
        loss = ((net(torch.full((1, 2), float(n % 5))) - 1.0) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
def weights(net):
    return [one.detach().tolist() for one in net.parameters()]
def net_of_ones():
    net = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(net.weight)
    torch.nn.init.zeros_(net.bias)
    return net
def stepped(kind, **options):
    net = net_of_ones()
    return [net, kind(net.parameters(), lr=0.01, **options)]
"""
_CLASS = f"""{_T}
class TaggedTensor(torch.Tensor):
    pass
"""
_SCHEDULED = (
    _STEP
    + """def scheduled():
    net, optimizer = stepped(torch.optim.SGD)
    return [net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]
"""
)
_LOADER = f"""{_T}
import torch.utils.data
def loader():
    made = torch.Generator()
    made.manual_seed(3)
    rows = torch.utils.data.TensorDataset(torch.arange(400))
    return torch.utils.data.DataLoader(rows, 1, shuffle=True, generator=made)
"""

_ALL = (
    Thing("torch.Tensor", "torch.zeros(3)", "thing[n % 3] += n + 1", "thing.tolist()", _T),
    Thing("torch.Tensor-rebound", "torch.zeros(2)", "thing = thing * 0.5 + n", "thing.tolist()", _T),
    Thing("torch.Tensor-resized", "torch.zeros(0)", "thing = torch.cat([thing[-4:], torch.tensor([float(n)])])", "thing.tolist()", _T),
    Thing("torch.Tensor-float8", "torch.zeros(3).to(torch.float8_e5m2)", "thing = (thing.float() * 0.5 + n).to(torch.float8_e5m2)", "thing.float().tolist()", _T),
    Thing("torch.Tensor-complex32", "torch.zeros(3, dtype=torch.complex64).to(torch.complex32)", "thing = (thing.to(torch.complex64) * 0.5 + n).to(torch.complex32)", "thing.to(torch.complex64).real.tolist()", _T),
    Thing("torch.Tensor-quantized", "torch.quantize_per_tensor(torch.zeros(3), 0.5, 0, torch.qint32)", "thing = torch.quantize_per_tensor(thing.dequantize() * 0.5 + n, 0.5, 0, torch.qint32)", "thing.dequantize().tolist()", _T),
    Thing("torch.Tensor-bfloat16", "torch.zeros(3, dtype=torch.bfloat16)", "thing[n % 3] += n + 1", "thing.tolist()", _T),
    Thing("torch.Tensor-bool", "torch.zeros(3, dtype=torch.bool)", "thing[n % 3] = ~thing[n % 3]", "thing.tolist()", _T),
    Thing("torch.Tensor-int64", "torch.zeros(3, dtype=torch.int64)", "thing[n % 3] += n + 1", "thing.tolist()", _T),
    Thing("torch.Tensor-complex", "torch.zeros(2, dtype=torch.complex64)", "thing[n % 2] += n + 1j", "repr(thing.tolist())", _T),
    Thing("torch.Tensor-view", "(lambda base: [base, base[::2]])(torch.zeros(8))", "thing[1][n % 4] += n + 1", "[one.tolist() for one in thing]", _T),
    Thing("torch.Tensor-list", "[torch.zeros(2), torch.ones(1)]", "thing[n % 2].add_(n + 1.0)", "[one.tolist() for one in thing]", _T),
    Thing("torch.Tensor-grad", "torch.ones(2, requires_grad=True)", "(thing * float(n)).sum().backward()", "thing.grad.tolist() if thing.grad is not None else None", _T),
    Thing("torch.Tensor-class", "torch.zeros(3).as_subclass(TaggedTensor)", "thing[n % 3] += n + 1", "[torch.Tensor.tolist(thing), type(thing).__name__]", _CLASS),
    Thing("torch.Parameter", "torch.nn.Parameter(torch.zeros(2))", "thing.data.mul_(0.5).add_(n)", "thing.detach().tolist()", _T),
    Thing("torch.ParameterList", "torch.nn.ParameterList([torch.zeros(2), torch.ones(1)])", "thing[n % 2].data.mul_(0.5).add_(n)", "[one.detach().tolist() for one in thing]", _T),
    Thing("torch.sparse", "torch.zeros(3).to_sparse()", "thing = thing + torch.tensor([float(n), 0.0, 1.0]).to_sparse()", "thing.to_dense().tolist()", _T),
    Thing("torch.sparse_csr", "torch.eye(3).to_sparse_csr()", "thing.values().add_(n + 1.0)", "thing.to_dense().tolist()", _T),
    Thing("torch.nested", "torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)])", "thing = thing * 0.5 + torch.nested.nested_tensor([torch.full((1,), float(n)), torch.ones(2)])", "[one.tolist() for one in thing.unbind()]", _T),
    Thing("torch.quantized", "torch.quantize_per_tensor(torch.zeros(2), 0.5, 0, torch.qint8)", "thing = torch.quantize_per_tensor(thing.dequantize() * 0.5 + n, 0.5, 0, torch.qint8)", "thing.dequantize().tolist()", _T),
    Thing("torch.UntypedStorage", "torch.zeros(4, dtype=torch.uint8).untyped_storage()", "thing[n % 4] = (thing[n % 4] + n + 1) % 256", "list(thing)", _T),
    Thing("torch.Generator", "torch.Generator().manual_seed(3)", "torch.rand(1, generator=thing)", "zlib.crc32(bytes(thing.get_state().tolist()))", f"import zlib\n{_T}"),
    Thing("torch.Generator-drawn", "[torch.Generator().manual_seed(3), 0.0]", "thing[1] += float(torch.randn((), generator=thing[0])) * (n + 1)", "thing[1]", _T),
    Thing("torch.rand", "[0.0]", "thing[0] += float(torch.rand(())) * (n + 1)", "thing", _T),
    Thing("torch.optim.SGD", "stepped(torch.optim.SGD, momentum=0.9)", "step(*thing, n)", "weights(thing[0])", _STEP),
    Thing("torch.optim.Adam", "stepped(torch.optim.Adam)", "step(*thing, n)", "weights(thing[0])", _STEP),
    Thing("torch.optim.Adam-rate", "stepped(torch.optim.Adam)", "thing[1].param_groups[0]['lr'] *= 0.9; step(*thing, n)", "weights(thing[0])", _STEP),
    Thing("torch.optim.AdamW-amsgrad", "stepped(torch.optim.AdamW, amsgrad=True)", "step(*thing, n)", "weights(thing[0])", _STEP),
    Thing("torch.StepLR", "scheduled()", "step(*thing[:2], n); thing[2].step()", "[weights(thing[0]), thing[2].get_last_lr()]", _SCHEDULED),
    Thing("torch.Linear", "net_of_ones()", "[one.data.mul_(0.5).add_(n) for one in thing.parameters()]", "weights(thing)", _STEP),
    Thing("torch.BatchNorm", "torch.nn.BatchNorm1d(2)", "thing(torch.full((2, 2), float(n)))", "[thing.running_mean.tolist(), int(thing.num_batches_tracked)]", _T),
    Thing("torch.Dropout", "[torch.nn.Dropout(0.5), 0.0]", "thing[1] += float(thing[0](torch.ones(4)).sum()) * (n + 1)", "thing[1]", _T),
    Thing("torch.Module-own", "Own()", "thing.count(n)", "[thing.total, thing.seen.tolist()]", f"{_T}\nclass Own(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.total = 0\n        self.register_buffer('seen', torch.zeros(1))\n    def count(self, n):\n        self.total += n + 1\n        self.seen += n\n"),
    Thing("torch.AveragedModel", "(lambda net: [torch.optim.swa_utils.AveragedModel(net), net])(net_of_ones())", "[one.data.mul_(0.5).add_(n) for one in thing[1].parameters()]; thing[0].update_parameters(thing[1])", "weights(thing[0])", f"import torch.optim.swa_utils\n{_STEP}"),
    Thing("torch.state_dict", "{key: value.clone() for key, value in net_of_ones().state_dict().items()}", "[value.mul_(0.5).add_(n) for value in thing.values()]", "[value.tolist() for value in thing.values()]", _STEP),
    Thing("torch.GradScaler", "torch.amp.GradScaler('cpu', init_scale=4.0, growth_interval=2)", "thing.scale(torch.ones(())); thing.update(thing.get_scale() * 0.5 + n + 1)", "thing.get_scale()", _T),
    Thing("torch.DataLoader-iterator", "[iter(loader()), 0]", "thing[1] = thing[1] * 2 + int(next(thing[0])[0])", "thing[1]", _LOADER),
    Thing("torch.RandomSampler", "[loader(), 0]", "thing[1] = thing[1] * 2 + next(iter(thing[0].sampler))", "thing[1]", _LOADER),
    Thing("torch.hook", "hooked()", "thing[0](torch.full((1, 2), float(n)))", "thing[1]", f"{_T}\ndef hooked():\n    net, seen = torch.nn.Linear(2, 1), []\n    net.register_forward_hook(lambda module, given, found: seen.append(float(given[0].sum())))\n    return [net, seen]\n"),
    Thing("torch.Size", "torch.Size([1])", "thing = torch.Size([*thing[-3:], n])", "list(thing)", _T),
    Thing("torch.jit", "torch.jit.script(net_of_ones())", "[one.data.mul_(0.5).add_(n) for one in thing.parameters()]", "weights(thing)", _STEP),
    Thing("torch.distributions", "torch.distributions.Normal(torch.zeros(1), torch.ones(1))", "thing.loc.add_(n + 1.0)", "thing.loc.tolist()", f"{_T}\nimport torch.distributions"),
)  # fmt: skip

THINGS = tuple(one._replace(needs="torch") for one in _ALL)

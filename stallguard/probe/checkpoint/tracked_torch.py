"""What `stallguard.track` keeps of PyTorch: modules, optimizers, data loaders, and tensors as their bytes.

Of a module: parameters with their gradients (a checkpoint can lie between the micro-batches of a step) and whether they
are trained, all buffers, and what else its parts hold in attributes: numbers, texts, tensors, random generators.
Of an optimizer: its state_dict, with the types that its tensors had (load_state_dict converts them to the parameters').
Of a data loader: the same attributes of its samplers and its dataset, and its generators.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from . import random_state

_PLAIN = (bool, int, float, str)


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "nn") else None


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch."""
    torch = _torch()
    return torch is not None and isinstance(value, torch.Tensor)


def is_loader(value: Any) -> bool:
    """Return whether a value is a DataLoader."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.DataLoader)


def kept(value: Any) -> Any:
    """Return how a module, an optimizer or a DataLoader is kept (tracked_objects.Kept); None for any other object."""
    torch = _torch()
    if torch is None:
        return None
    if is_module(value):
        return ModuleState(value)
    if isinstance(value, torch.optim.Optimizer):
        return OptimizerState(value)
    return LoaderState(value) if is_loader(value) else None


def content(tensor: Any, dry: bool) -> tuple[dict[str, Any], Any]:
    """Return facts of a tensor and its bytes (none if `dry`).  Raises TypeError for one that is not dense."""
    torch = _torch()
    plain = tensor.detach()
    is_dense = type(plain) in (torch.Tensor, torch.nn.Parameter) and plain.layout == torch.strided
    if not is_dense or plain.is_quantized or plain.is_nested or plain.device.type == "meta":
        raise TypeError("a tensor that is sparse, quantized, nested, distributed or without values")
    facts = {"type": str(plain.dtype).rpartition(".")[2], "shape": list(plain.shape), "device": str(plain.device),
             "grad": bool(tensor.requires_grad)}  # fmt: skip
    if dry or not plain.numel():
        return facts, b""
    flat = plain.cpu().resolve_conj().resolve_neg().contiguous()
    buffer = (ctypes.c_ubyte * (flat.numel() * flat.element_size())).from_address(flat.data_ptr())
    buffer.owner = flat  # its memory lives as long as the view of it
    return facts, memoryview(buffer).cast("B")


def made(facts: dict[str, Any], blob: Any) -> Any:
    """Return the tensor that `content` read, on the CPU: a GPU has no room for the whole state a second time."""
    torch = _torch()
    dtype = getattr(torch, facts["type"])
    if not isinstance(dtype, torch.dtype):
        raise TypeError("%r names no type" % (facts["type"],))
    content = torch.frombuffer(bytearray(blob), dtype=torch.uint8).view(dtype) if len(blob) else torch.empty(0)
    tensor = content.to(dtype).reshape(facts["shape"])
    tensor.stallguard_place = (str(facts["device"]), bool(facts["grad"]))
    return tensor


def placed(tensor: Any) -> Any:
    """Return a tensor of `made` on the device where it was, if that is there, and with a gradient if it had one."""
    device, with_gradient = getattr(tensor, "stallguard_place", ("cpu", False))
    try:
        found = tensor.to(device)
    except (RuntimeError, AssertionError):  # this attempt trains on another device
        found = tensor
    return found.detach().requires_grad_(with_gradient)


def _alike(one: Any, other: Any) -> bool:
    return is_tensor(one) and is_tensor(other) and (one.shape, one.dtype) == (other.shape, other.dtype)


def written_into(existing: Any, state: Any) -> Any:
    """Return `existing` with the values of `state` if both are tensors of one shape and type, otherwise `state`."""
    if not _alike(existing, state):
        return placed(state) if is_tensor(state) else state
    with _torch().no_grad():
        existing.copy_(state)
    return existing


def _attributes(part: Any) -> dict[str, Any]:
    """Return what an object has in attributes of its own: numbers, texts, random generators."""
    found: dict[str, Any] = {}
    for name, one in list(getattr(part, "__dict__", {}).items()):
        state = None if type(one) in _PLAIN else random_state.read(one)
        if type(one) in _PLAIN or state is not None:
            found[name] = one if state is None else random_state.GeneratorState(*state)
    return found


def _into_attributes(part: Any, state: dict[str, Any]) -> None:
    for name, one in state.items():
        now = part.__dict__.get(name)
        if isinstance(one, random_state.GeneratorState):
            found = random_state.write(one.of, one.state, now)
        else:
            found = written_into(now, one)
        if found is not now and not (type(now) is type(one) and type(one) in _PLAIN and now == one):
            part.__dict__[name] = found  # a compiled step is not compiled again for an equal value


class ModuleState:
    """Of a torch.nn.Module."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def read(self) -> dict[str, Any]:
        """Return its state.  A tensor in an attribute counts if it is no part of a step's graph."""
        parameters, parts = dict(self._module.named_parameters()), list(self._module.named_modules())
        extra = _torch().nn.Module.get_extra_state
        attributes = {name: _attributes(part) for name, part in parts}
        for name, part in parts:
            own = vars(part).items()
            attributes[name].update({key: one for key, one in own if is_tensor(one) and one.grad_fn is None})
        return {
            "parameters": {name: one.detach() for name, one in parameters.items()},
            "trained": {name: one.requires_grad for name, one in parameters.items()},
            "gradients": {name: one.grad for name, one in parameters.items() if one.grad is not None},
            "buffers": dict(self._module.named_buffers()),
            "attributes": attributes,
            "extra": {name: part.get_extra_state() for name, part in parts if type(part).get_extra_state is not extra},
        }

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is one of such a module."""
        now, before = dict(self._module.named_parameters()), state["parameters"]
        is_alike = now.keys() == before.keys() and all(_alike(one, before[name]) for name, one in now.items())
        return is_alike and dict(self._module.named_modules()).keys() == state["attributes"].keys()

    def write(self, state: dict[str, Any]) -> None:
        """Write a state into it."""
        parts, buffers = dict(self._module.named_modules()), dict(self._module.named_buffers())
        for name, one in self._module.named_parameters():
            written_into(one.detach(), state["parameters"][name])
            one.requires_grad_(state["trained"][name])
            gradient = state["gradients"].get(name)
            one.grad = None if gradient is None else gradient.detach().to(one.device)
        for name, one in state["buffers"].items():
            found = written_into(buffers.get(name), one)
            if found is not buffers.get(name):
                owner, _, leaf = name.rpartition(".")
                parts[owner]._buffers[leaf] = found
        for name, one in state["attributes"].items():
            _into_attributes(parts[name], one)
        for name, one in state["extra"].items():
            parts[name].set_extra_state(one)


class OptimizerState:
    """Of a torch.optim.Optimizer."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self.read = optimizer.state_dict

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is one of such an optimizer: of as many parameters in each group."""
        now, before = self._optimizer.param_groups, state["param_groups"]
        return [len(one["params"]) for one in now] == [len(one["params"]) for one in before]

    def write(self, state: dict[str, Any]) -> None:
        """Write a state into it."""
        optimizer = self._optimizer
        groups = [{name: written_into(None, one) for name, one in group.items()} for group in state["param_groups"]]
        optimizer.load_state_dict({**state, "param_groups": groups})
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        for number, parameter in zip(numbers, parameters):
            for name, one in state["state"].get(number, {}).items():
                now = optimizer.state[parameter][name]
                if is_tensor(one) and not _alike(now, one):
                    optimizer.state[parameter][name] = one.detach().to(now.device)


def is_module(value: Any) -> bool:
    """Return whether a value is a module of torch."""
    torch = _torch()
    return torch is not None and isinstance(value, torch.nn.Module)


def names_of_module() -> set[str]:
    """Return the attributes that torch gives each module, without the one that the script changes."""
    return set(vars(_torch().nn.Module())) - {"training"}


def parts_of(loader: Any) -> dict[str, Any]:
    """Return the objects of a DataLoader that can have a position: samplers, and the dataset with those inside."""
    found: dict[str, Any] = {}
    for name in ("sampler", "batch_sampler", "dataset"):
        one, path = getattr(loader, name, None), name
        while one is not None and path not in found:
            found[path] = one
            inner = "dataset" if name == "dataset" else "sampler"
            one, path = getattr(one, inner, None), "%s.%s" % (path, inner)
    for path, one in list(found.items()):
        for number, inner in enumerate(getattr(one, "datasets", ()) if path.startswith("dataset") else ()):
            found["%s.%d" % (path, number)] = inner
    return found


class LoaderState:
    """Of a torch.utils.data.DataLoader: what it draws from, not its position."""

    def __init__(self, loader: Any) -> None:
        """Raises TypeError if its workers have generators that cannot be read, or their order depends on time."""
        if not getattr(loader, "in_order", True):
            raise TypeError("its batches come in an order that depends on time (in_order=False)")
        if loader.persistent_workers:
            raise TypeError("the generators of workers that live on (persistent_workers=True) cannot be read")
        self._loader = loader

    def read(self) -> dict[str, Any]:
        """Return the attributes and generators of its parts."""
        generator = random_state.read(self._loader.generator)
        return {
            "parts": {path: _attributes(part) for path, part in parts_of(self._loader).items()},
            "generator": None if generator is None else random_state.GeneratorState(*generator),
        }

    def fits(self, state: dict[str, Any]) -> bool:
        """Return whether a state is one of such a loader."""
        return bool(parts_of(self._loader).keys() == state["parts"].keys())

    def write(self, state: dict[str, Any]) -> None:
        """Write a state into its parts."""
        parts, generator = parts_of(self._loader), state["generator"]
        for path, one in state["parts"].items():
            _into_attributes(parts[path], one)
        if generator is not None and self._loader.generator is not None:
            random_state.write(generator.of, generator.state, self._loader.generator)

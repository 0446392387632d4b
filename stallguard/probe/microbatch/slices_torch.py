"""Slices for Keras 3 on torch: one after the other, each with its backward pass.

Rows are compared eagerly, and all state is restored.  A TorchFunctionMode intercepts every call of torch's functions in
this thread, so that random functions return the same numbers for each row (deferred_update.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import announcements, batch_structure, compare, deferred_update, slice_plan, sliced_step
from .deferred_update import HeldUpdate, loss_tracker
from .sliced_step import ComparedRows, SlicedStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Slices

REAL = (
    ("", "multinomial randperm poisson binomial alpha_dropout feature_alpha_dropout feature_dropout rrelu"),
    ("Tensor", "random_ exponential_ geometric_ cauchy_ log_normal_ multinomial"),
    ("nn.functional", "alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu gumbel_softmax"),
)


class RunningSums:
    """Sums over slices: of the batch's shares, of loss times share, of gradients times share."""

    def __init__(self) -> None:
        self.share: Any = 0.0
        self.loss: Any = 0.0
        self._gradients: list[Any] = []

    def add(self, held: HeldUpdate, slice_: slice_plan.Slice) -> None:
        """Add the results of one slice."""
        share = slice_.share
        self.share = self.share + share
        if held.loss is not None:
            self.loss = self.loss + held.loss.detach().mean() * share * slice_.logged
        parts = held.gradients or []
        if self._gradients:
            self._gradients = list(map(_plus, self._gradients, parts))
        else:
            self._gradients = [None if g is None else g.clone() for g in parts]

    def mean(self) -> list[Any]:
        """Return the batch's gradients, None for a variable without one."""
        return [None if g is None else g / self.share for g in self._gradients]


def _plus(one: Any, other: Any) -> Any:
    return one if other is None else other if one is None else one.add_(other)


class _Torch(compare.Framework):
    def __init__(self, module: Any) -> None:
        self.torch, self._convert = module.torch, module.backend.convert_to_tensor
        super().__init__(module.tree.map_structure, module.torch.cat, module.torch.zeros_like)

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        return model.train_step(self.mapped(self._convert, batch))

    def kept(self, model: Any, *, weights: bool) -> list[tuple[str, Any, Any]]:
        found = [*model.non_trainable_variables, *model.metrics_variables]
        found += model.trainable_variables if weights else []
        tensors = {variable.path: variable.value.detach() for variable in found}
        return [(path, tensor, tensor.clone()) for path, tensor in tensors.items()]

    def put_back(self, before: list[tuple[str, Any, Any]]) -> None:
        with self.torch.no_grad():
            for _, tensor, value in before:
                tensor.copy_(value)

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        slopes = [(parameter, parameter.grad) for parameter in model.parameters()]
        try:
            with super().preserved(model) as before:
                yield before
        finally:
            for parameter, slope in slopes:
                parameter.grad = slope


class _TorchRows(ComparedRows):
    def fixed(self, draws: deferred_update.Draws) -> AbstractContextManager[Any]:
        return alike(self.framework.torch, draws)

    def changed(self, before: Any) -> dict[str, Any]:
        passed = {variable.path for variable in self.model.metrics_variables}
        return {
            path: self.array(tensor).copy()
            for path, tensor, value in before
            if path not in passed and "seed_generator" not in path and not self.framework.torch.equal(tensor, value)
        }

    def array(self, gradient: Any) -> Any:
        if not hasattr(gradient, "detach"):
            return gradient
        tensor = gradient.detach().cpu()
        return (tensor.float() if "16" in str(tensor.dtype) else tensor).numpy()


class _TorchStep(SlicedStep):
    compared = _TorchRows

    def obstacle(self) -> str:
        return announcements.COMPILED if getattr(self.model, "jit_compile", False) else ""

    def train(self, held: HeldUpdate, data: Any, count: int) -> Any:
        batch = len(batch_structure.leaves(data)[0][1])
        return *self.summed(held, data, slice_plan.plan(batch, count), batch), batch

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        logs, sums, batch = trained
        if held.variables:
            with self.framework.torch.no_grad():
                self.model.optimizer.apply(sums.mean(), held.variables)
        held.log(loss_tracker(self.model), sums.loss / sums.share, batch)
        return batch_structure.fresh_logs(self.model, logs)

    def mean(self, sums: RunningSums, _held: HeldUpdate) -> list[Any]:
        return sums.mean()

    def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: int) -> tuple[Any, RunningSums]:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        first, size, others = cuts
        sums, begin, logs = RunningSums(), 0, None
        for extent in [first] + [size] * others:
            rows = slice(begin, begin + extent)
            with slice_plan.slicing(extent, batch) as slice_:
                held.weigh = lambda loss, slice_=slice_: loss * slice_.share
                logs = self.original(self.model, self.framework.mapped(lambda leaf: leaf[rows], data))  # noqa: B023
            held.uneven |= slice_.uneven
            sums.add(held, slice_)
            begin += extent
        return logs, sums


def patch(slices: Slices, module: Any) -> None:
    """Have the trainer that runs on torch train its batches in slices."""
    sliced_step.patch(slices, module.TorchTrainer, _TorchStep, _Torch(module))


def alike(torch: Any, noted: deferred_update.Draws) -> AbstractContextManager[Any]:
    """Have random functions return the same numbers for every row during the body."""
    numbers = _Numbers(torch).table()

    class Alike(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, function: Any, _types: Any, args: Any = (), named: Any = None) -> Any:
            named = named or {}
            if function not in numbers or _keeps_all(torch, function, args, named):
                return function(*args, **named)
            stand_in = numbers[function]
            noted.note(real=stand_in is None)
            return stand_in(*args, **named) if stand_in else function(*args, **named)

    mode: AbstractContextManager[Any] = Alike()
    return mode


def _keeps_all(torch: Any, function: Any, args: Any, named: Any) -> bool:
    """Return whether a function that can drop values is called to drop none."""
    functional = torch.nn.functional
    # Of the argument that says how many.
    places = {torch.dropout: 1, functional.dropout: 1, functional.scaled_dot_product_attention: 4}
    if function not in places:
        return False
    place, usual = places[function], 0.5 if function is functional.dropout else 0.0
    rate = args[place] if len(args) > place else named.get("dropout_p", named.get("p", usual))
    trains = args[2] if place == 1 and len(args) > 2 else named.get("training", named.get("train", True))  # noqa: PLR2004
    return not (rate and trains)


class _Numbers:
    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def table(self) -> dict[Any, Any]:
        """Return {function of torch: its replacement, None for a draw that stays real}."""
        torch = self.torch
        found: dict[Any, Any] = {
            torch.rand: self.rand, torch.rand_like: self.rand_like,
            torch.randn: self.randn, torch.randn_like: self.randn_like,
            torch.bernoulli: self.bernoulli, torch.normal: self.normal, torch.randint: self.randint,
            torch.dropout: self.dropout, torch.nn.functional.dropout: self.dropout,
            torch.Tensor.uniform_: self.uniform_, torch.Tensor.normal_: self.normal_,
            torch.Tensor.bernoulli_: self.bernoulli_,
            torch.nn.functional.scaled_dot_product_attention: self.attention,
        }  # fmt: skip
        for place, names in REAL:
            owner = torch
            for part in filter(None, place.split(".")):
                owner = getattr(owner, part)
            found.update((getattr(owner, name), None) for name in names.split() if hasattr(owner, name))
        return found

    def _field(self, shape: Any, **options: Any) -> Any:
        shape = [int(length) for length in shape]
        numbers = deferred_update.field(shape)
        kept = {name: value for name, value in options.items() if value is not None}
        return self.torch.tensor(numbers if shape else numbers[0], **kept).expand(shape).clone()

    def _bell(self, uniform: Any) -> Any:
        return self.torch.special.ndtri(uniform.float()).to(uniform.dtype)

    def rand(self, *shape: Any, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        if size is None:
            size = shape[0] if shape and hasattr(shape[0], "__len__") else shape
        return self._field(size, dtype=dtype, device=device)

    def randn(self, *shape: Any, **options: Any) -> Any:
        return self._bell(self.rand(*shape, **options))

    def rand_like(self, tensor: Any, **_: Any) -> Any:
        return self._field(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    def randn_like(self, tensor: Any, **_: Any) -> Any:
        return self._bell(self.rand_like(tensor))

    def bernoulli(self, p: Any, **_: Any) -> Any:
        return (self.rand_like(p) < p).to(p.dtype)

    def normal(self, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
        if size is None:
            size = self.torch.broadcast_shapes(*(getattr(part, "shape", ()) for part in (mean, std)))
        kept = {name: options.get(name) for name in ("dtype", "device")}
        return mean + std * self._bell(self._field(size, **kept))

    def randint(self, *given: Any, low: Any = 0, high: Any = None, size: Any = None, **options: Any) -> Any:
        bounds = [bound for bound in given if not hasattr(bound, "__len__")]
        if size is None:
            size = given[-1]
        if high is None:
            high = bounds.pop()
        low = bounds.pop() if bounds else low
        numbers = low + self._field(size, device=options.get("device")) * (high - low)
        return numbers.floor().to(options.get("dtype") or self.torch.int64)

    def dropout(self, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        if not training or not 0.0 < p < 1.0:
            return input
        return input * (self.rand_like(input) >= p).to(input.dtype) / (1.0 - p)

    def attention(self, query: Any, key: Any, value: Any, attn_mask: Any = None, *rest: Any, **named: Any) -> Any:
        """Attend to all: what it drops is in no other argument."""
        named = {**dict(zip(("dropout_p", "is_causal"), rest)), **named, "dropout_p": 0.0}
        return self.torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, **named)

    def uniform_(self, tensor: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> Any:
        return tensor.copy_(low + self.rand_like(tensor) * (high - low))

    def normal_(self, tensor: Any, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
        return tensor.copy_(mean + std * self.randn_like(tensor))

    def bernoulli_(self, tensor: Any, p: float = 0.5, **_: Any) -> Any:
        return tensor.copy_((self.rand_like(tensor) < p).to(tensor.dtype))

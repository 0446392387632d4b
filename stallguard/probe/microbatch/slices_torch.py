"""Slices for Keras 3 on torch: one after the other, each with its backward pass.

Rows are compared eagerly, and all state is restored.  A TorchFunctionMode intercepts every call of torch's functions in
this thread, so that random functions return the same numbers for each row (deferred_update.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable

from . import announcements, batch_structure, compare, deferred_update, slice_plan, sliced_step
from .deferred_update import HeldUpdate, loss_tracker
from .sliced_step import WEIGHTS, ComparedRows, SlicedStep

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from .compare import Slices

REAL = (
    ("", "multinomial randperm poisson binomial alpha_dropout feature_alpha_dropout feature_dropout rrelu"),
    ("Tensor", "random_ exponential_ geometric_ cauchy_ log_normal_ multinomial"),
    (
        "nn.functional",
        "alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu gumbel_softmax",
    ),
)


def patch(slices: Slices, module: Any) -> None:
    """Have the trainer that runs on torch train its batches in slices."""

    def train_step(original: Any) -> Any:
        return lambda self, data: TorchStep(module, slices, original, self).run(data, slices.context.factor)

    sliced_step.patch(slices, module.TorchTrainer, train_step, TorchComparison(module))


class TorchStep(SlicedStep):
    """One `train_step` call on torch."""

    def __init__(self, module: Any, slices: Slices, original: Any, model: Any) -> None:
        super().__init__(slices, original, model)
        self.module = module

    def obstacle(self) -> str:
        """See SlicedStep."""
        return announcements.COMPILED if getattr(self.model, "jit_compile", False) else ""

    def kept(self) -> Any:
        """See SlicedStep."""
        return values(self.model, weights=False)

    def put_back(self, before: Any) -> None:
        """See SlicedStep."""
        put_back(self.module.torch, before)

    def compared_rows(self) -> TorchRows:
        """See SlicedStep."""
        return TorchRows(self)

    def train(self, held: HeldUpdate, data: Any, factor: int) -> Any:
        """See SlicedStep."""
        batch = len(batch_structure.leaves(data)[0][1])
        return *self.summed(held, data, slice_plan.plan(batch, factor), batch), batch

    def finish(self, held: HeldUpdate, trained: Any) -> Any:
        """See SlicedStep."""
        logs, sums, batch = trained
        if held.variables:
            with self.module.torch.no_grad():
                self.model.optimizer.apply(sums.mean(), held.variables)
        held.log(loss_tracker(self.model), sums.loss / sums.share, batch)
        return batch_structure.fresh_logs(self.model, logs)

    def summed(self, held: HeldUpdate, data: Any, cuts: Any, batch: int) -> tuple[Any, RunningSums]:
        """Return (logs, sums) of all slices: first, size and number of the others are `cuts`."""
        first, size, others = cuts
        sums, begin, logs = RunningSums(), 0, None
        for extent in [first] + [size] * others:
            with slice_plan.slicing(extent, batch) as slice_:
                held.weigh = lambda loss, slice_=slice_: loss * _share(slice_)
                logs = self.original(self.model, self.cut(data, begin, extent))
            held.uneven |= slice_.uneven
            sums.add(held, slice_)
            begin += extent
        return logs, sums

    def cut(self, data: Any, begin: int, size: int) -> Any:
        """Return `size` rows of each leaf from `begin`."""
        return self.module.tree.map_structure(
            lambda leaf: None if leaf is None else leaf[begin : begin + size], data
        )


def _share(slice_: slice_plan.Slice) -> Any:
    return (slice_.size if slice_.divisor is None else slice_.divisor) / slice_.batch


class RunningSums:
    """Sums over slices: of the batch's shares, of loss times share, of gradients times share."""

    def __init__(self) -> None:
        self.share: Any = 0.0
        self.loss: Any = 0.0
        self._gradients: list[Any] = []

    def add(self, held: HeldUpdate, slice_: slice_plan.Slice) -> None:
        """Add the results of one slice."""
        share = _share(slice_)
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


class TorchComparison(compare.Framework):
    """What a comparison needs from Keras on torch."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def train(self, model: Any, arguments: Any, batch: Any) -> Any:
        """Run the step, with numpy arrays converted to tensors on the model's device."""
        convert = self.module.backend.convert_to_tensor
        given = self.module.tree.map_structure(lambda leaf: None if leaf is None else convert(leaf), batch)
        return model.train_step(given)

    @contextmanager
    def preserved(self, model: Any) -> Iterator[Any]:
        """Restore all variables, and the gradients that torch keeps."""
        before = values(model, weights=True)
        slopes = [(parameter, parameter.grad) for parameter in model.parameters()]
        try:
            yield before
        finally:
            put_back(self.module.torch, before)
            for parameter, slope in slopes:
                parameter.grad = slope


class TorchRows(ComparedRows):
    """Rows of a batch on torch."""

    def __init__(self, step: TorchStep) -> None:
        super().__init__(step)
        self.torch = step.module.torch

    def mapped(self, change: Callable[[Any], Any], data: Any) -> Any:
        """See ComparedRows."""
        return self.step.module.tree.map_structure(lambda leaf: None if leaf is None else change(leaf), data)

    def taken(self, leaf: Any, places: list[int]) -> Any:
        """See ComparedRows."""
        return leaf[places]

    def blank(self, leaf: Any) -> Any:
        """See ComparedRows."""
        return self.torch.cat([leaf[:-1], self.torch.zeros_like(leaf[-1:])])

    def weighed(self, leaf: Any) -> Any:
        """See ComparedRows."""
        if not leaf.is_floating_point():
            return leaf
        weights = self.torch.tensor(WEIGHTS[: leaf.shape[0]], dtype=leaf.dtype, device=leaf.device)
        return leaf * weights.reshape([-1] + [1] * (leaf.ndim - 1))

    def fixed(self, draws: deferred_update.Draws) -> AbstractContextManager[Any]:
        """See ComparedRows."""
        return alike(self.torch, draws)

    def preserved(self) -> AbstractContextManager[Any]:
        """See ComparedRows."""
        return TorchComparison(self.step.module).preserved(self.model)

    def changed(self, before: Any) -> dict[str, Any]:
        """See ComparedRows."""
        passed = {variable.path for variable in self.model.metrics_variables}
        return {
            path: _plain(tensor).copy()
            for path, tensor, value in before
            if path not in passed and "seed_generator" not in path and not self.torch.equal(tensor, value)
        }

    def flat(self, output: Any) -> list[Any]:
        """See ComparedRows."""
        found: list[Any] = self.step.module.tree.flatten(output)
        return found

    def has_rows(self, leaf: Any) -> bool:
        """See ComparedRows."""
        return bool(getattr(leaf, "ndim", 0))

    def joined(self, parts: Any) -> Any:
        """See ComparedRows."""
        return _plain(self.torch.cat(parts))

    def mean(self, sums: Any, held: HeldUpdate) -> Any:
        """See ComparedRows."""
        return sums.mean()

    def number(self, value: Any) -> float:
        """See ComparedRows."""
        return float(value.detach().float().mean()) if hasattr(value, "detach") else float(value)

    def array(self, gradient: Any) -> Any:
        """See ComparedRows."""
        return _plain(gradient)


def values(model: Any, weights: bool) -> list[tuple[str, Any, Any]]:
    """Return (path, tensor, copy) of all variables that a step can change; `weights`: with the trained ones."""
    found = [*model.non_trainable_variables, *model.metrics_variables]
    found += model.trainable_variables if weights else []
    tensors = {variable.path: variable.value.detach() for variable in found}
    return [(path, tensor, tensor.clone()) for path, tensor in tensors.items()]


def put_back(torch: Any, before: list[tuple[str, Any, Any]]) -> None:
    """Set the variables to the copies that `values` returned."""
    with torch.no_grad():
        for _, tensor, value in before:
            tensor.copy_(value)


def _plain(tensor: Any) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.float() if "16" in str(tensor.dtype) else tensor).numpy()


def alike(torch: Any, noted: deferred_update.Draws) -> AbstractContextManager[Any]:
    """Have random functions return the same numbers for every row during the body."""
    numbers = Numbers(torch).table()

    class Alike(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Replaces the calls of the functions in `numbers`."""

        def __torch_function__(self, function: Any, _types: Any, args: Any = (), named: Any = None) -> Any:
            named = named or {}
            if function not in numbers:
                return function(*args, **named)
            stand_in = numbers[function]
            noted.note(real=stand_in is None)
            return stand_in(*args, **named) if stand_in else function(*args, **named)

    mode: AbstractContextManager[Any] = Alike()
    return mode


class Numbers:
    """The replacements of the functions, each with the arguments of its original."""

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
        }  # fmt: skip
        for place, names in REAL:
            owner = torch
            for part in filter(None, place.split(".")):
                owner = getattr(owner, part)
            found.update((getattr(owner, name), None) for name in names.split() if hasattr(owner, name))
        return found

    def _field(self, shape: Any, **options: Any) -> Any:
        shape = [int(length) for length in shape]
        numbers = deferred_update.row(shape)
        kept = {name: value for name, value in options.items() if value is not None}
        return self.torch.tensor(numbers if shape else numbers[0], **kept).expand(shape).clone()

    def _bell(self, uniform: Any) -> Any:
        return self.torch.special.ndtri(uniform.float()).to(uniform.dtype)

    def rand(self, *shape: Any, size: Any = None, dtype: Any = None, device: Any = None, **_: Any) -> Any:
        """Return numbers between 0 and 1."""
        if size is None:
            size = shape[0] if shape and hasattr(shape[0], "__len__") else shape
        return self._field(size, dtype=dtype, device=device)

    def randn(self, *shape: Any, **options: Any) -> Any:
        """Return normally distributed numbers."""
        return self._bell(self.rand(*shape, **options))

    def rand_like(self, tensor: Any, **_: Any) -> Any:
        """Return numbers between 0 and 1 with the shape and type of a tensor."""
        return self._field(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    def randn_like(self, tensor: Any, **_: Any) -> Any:
        """Return normally distributed numbers with the shape and type of a tensor."""
        return self._bell(self.rand_like(tensor))

    def bernoulli(self, p: Any, **_: Any) -> Any:
        """Return ones, each with the probability of its element."""
        return (self.rand_like(p) < p).to(p.dtype)

    def normal(self, mean: Any, std: Any = 1.0, size: Any = None, **options: Any) -> Any:
        """Return normally distributed numbers, of the given size or the shape of the parameters."""
        if size is None:
            size = self.torch.broadcast_shapes(*(getattr(part, "shape", ()) for part in (mean, std)))
        kept = {name: options.get(name) for name in ("dtype", "device")}
        return mean + std * self._bell(self._field(size, **kept))

    def randint(self, *given: Any, low: Any = 0, high: Any = None, size: Any = None, **options: Any) -> Any:
        """Return whole numbers."""
        bounds = [bound for bound in given if not hasattr(bound, "__len__")]
        if size is None:
            size = given[-1]
        if high is None:
            high = bounds.pop()
        low = bounds.pop() if bounds else low
        numbers = low + self._field(size, device=options.get("device")) * (high - low)
        return numbers.floor().to(options.get("dtype") or self.torch.int64)

    def dropout(self, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:  # noqa: A002
        """Return the input with a fraction `p` of it dropped."""
        if not training or not 0.0 < p < 1.0:
            return input
        return input * (self.rand_like(input) >= p).to(input.dtype) / (1.0 - p)

    def uniform_(self, tensor: Any, low: float = 0.0, high: float = 1.0, **_: Any) -> Any:
        """Fill a tensor with numbers between `low` and `high`."""
        return tensor.copy_(low + self.rand_like(tensor) * (high - low))

    def normal_(self, tensor: Any, mean: float = 0.0, std: float = 1.0, **_: Any) -> Any:
        """Fill a tensor with normally distributed numbers."""
        return tensor.copy_(mean + std * self.randn_like(tensor))

    def bernoulli_(self, tensor: Any, p: float = 0.5, **_: Any) -> Any:
        """Fill a tensor with zeros and ones."""
        return tensor.copy_((self.rand_like(tensor) < p).to(tensor.dtype))

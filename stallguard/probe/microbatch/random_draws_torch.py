"""Replaces torch's random functions while rows are compared: see random_draws.py.

A TorchFunctionMode intercepts every call of torch's functions in this thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import random_draws

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

REAL = (
    ("", "multinomial randperm poisson binomial alpha_dropout feature_alpha_dropout feature_dropout rrelu"),
    ("Tensor", "random_ exponential_ geometric_ cauchy_ log_normal_ multinomial"),
    (
        "nn.functional",
        "alpha_dropout feature_alpha_dropout dropout1d dropout2d dropout3d rrelu gumbel_softmax",
    ),
)


def alike(torch: Any, noted: random_draws.Draws) -> AbstractContextManager[Any]:
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
        numbers = random_draws.row(shape)
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

"""Replaces the functions of jax.random while rows are compared: see random_draws.py."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable

from . import random_draws

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

REAL = (
    "ball beta binomial categorical cauchy chisquare choice dirichlet double_sided_maxwell exponential f gamma "
    "generalized_normal geometric gumbel laplace loggamma logistic lognormal maxwell multivariate_normal orthogonal "
    "pareto permutation poisson rademacher rayleigh shuffle t triangular wald weibull_min"
)


def alike(jax: Any, noted: random_draws.Draws) -> AbstractContextManager[None]:
    """Have random functions return the same numbers for every row during the body."""
    numbers = {
        "uniform": _uniform, "normal": _normal, "truncated_normal": _truncated, "bernoulli": _bernoulli,
        "randint": _randint, "bits": _bits, **dict.fromkeys(REAL.split()),
    }  # fmt: skip
    return random_draws.replaced(
        [(jax.random, name, _maker(jax.numpy, noted, found)) for name, found in numbers.items()]
    )


def _maker(numpy: Any, noted: random_draws.Draws, numbers: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def draw(*args: Any, **named: Any) -> Any:
            noted.note(real=numbers is None)
            if numbers is None:
                return original(*args, **named)
            asked = signature.bind(*args, **named)
            asked.apply_defaults()
            return numbers(numpy, asked.arguments)

        return draw

    return make


def _field(numpy: Any, shape: Any) -> Any:
    shape = tuple(shape or ())
    numbers = random_draws.row(list(shape))
    return numpy.broadcast_to(numpy.asarray(numbers if shape else numbers[0], "float32"), shape)


def _cast(numpy: Any, values: Any, asked: Any) -> Any:
    kind = asked.get("dtype")
    return values.astype(kind) if kind is not None and numpy.issubdtype(kind, numpy.floating) else values


def _uniform(numpy: Any, asked: Any) -> Any:
    low, high = asked["minval"], asked["maxval"]
    return _cast(numpy, low + _field(numpy, asked["shape"]) * (high - low), asked)


def _normal(numpy: Any, asked: Any) -> Any:
    return _cast(numpy, _bell(_field(numpy, asked["shape"])), asked)


def _truncated(numpy: Any, asked: Any) -> Any:
    return _cast(
        numpy, numpy.clip(_bell(_field(numpy, asked["shape"])), asked["lower"], asked["upper"]), asked
    )


def _bell(uniform: Any) -> Any:
    from jax.scipy.special import ndtri  # a function of numbers, not of keys

    return ndtri(uniform)


def _bernoulli(numpy: Any, asked: Any) -> Any:
    p = numpy.asarray(asked["p"])
    shape = asked["shape"] if asked["shape"] is not None else p.shape
    return _field(numpy, shape) < p


def _randint(numpy: Any, asked: Any) -> Any:
    low, high = asked["minval"], asked["maxval"]
    kind = asked["dtype"] if numpy.issubdtype(asked["dtype"], numpy.integer) else "int32"
    return (low + numpy.floor(_field(numpy, asked["shape"]) * (high - low))).astype(kind)


def _bits(numpy: Any, asked: Any) -> Any:
    return (_field(numpy, asked["shape"]) * (1 << 30)).astype(asked["dtype"] or "uint32")

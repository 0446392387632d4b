"""Replaces TensorFlow's random operations while rows are compared: see random_draws.py.

Only in eager code: a function of the script that is traced meanwhile keeps its graph for the training, which must draw
real random numbers.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, Callable

from . import random_draws

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

OPS = "tensorflow.python.ops."
UNIFORM = {"gen_random_ops": "random_uniform", "gen_stateless_random_ops_v2": "stateless_random_uniform_v2"}
NORMAL = {
    "gen_random_ops": "random_standard_normal truncated_normal",
    "gen_stateless_random_ops_v2": "stateless_random_normal_v2 stateless_truncated_normal_v2",
}
WHOLE = {
    "gen_random_ops": "random_uniform_int",
    "gen_stateless_random_ops_v2": "stateless_random_uniform_int_v2 stateless_random_uniform_full_int_v2",
}
REAL = {
    "gen_random_ops": "multinomial parameterized_truncated_normal random_gamma random_poisson_v2 random_shuffle",
    "gen_stateless_random_ops": "stateless_multinomial stateless_parameterized_truncated_normal "
    "stateless_random_binomial stateless_random_poisson stateless_random_gamma_v2",
    "gen_stateless_random_ops_v2": "stateless_random_gamma_v3 stateless_shuffle",
    "gen_stateful_random_ops": "stateful_random_binomial non_deterministic_ints",
}
RANGE = 1 << 30  # of integers without bounds


def alike(tf: Any, noted: random_draws.Draws) -> AbstractContextManager[None]:
    """Have random operations return the same numbers for every row during the body."""
    makers = ((UNIFORM, _uniform), (NORMAL, _normal), (WHOLE, _whole), (REAL, None))
    return random_draws.replaced(
        [
            (sys.modules[OPS + module], name, _maker(tf, noted, numbers))
            for table, numbers in makers
            for module, names in table.items()
            if OPS + module in sys.modules
            for name in names.split()
        ]
    )


def _maker(tf: Any, noted: random_draws.Draws, numbers: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        signature = inspect.signature(original)

        def draw(*args: Any, **named: Any) -> Any:
            real = numbers is None or not tf.executing_eagerly()
            noted.note(real)
            if real:
                return original(*args, **named)
            asked = signature.bind(*args, **named)
            asked.apply_defaults()
            return numbers(tf, asked.arguments)

        return draw

    return make


def _field(tf: Any, asked: Any) -> Any:
    shape = [int(length) for length in tf.convert_to_tensor(asked["shape"]).numpy()]
    numbers = random_draws.row(shape)
    return (
        tf.broadcast_to(tf.constant(numbers, tf.float64), shape)
        if shape
        else tf.constant(numbers[0], tf.float64)
    )


def _uniform(tf: Any, asked: Any) -> Any:
    return tf.cast(_field(tf, asked), asked["dtype"])


def _normal(tf: Any, asked: Any) -> Any:
    return tf.cast(tf.math.ndtri(_field(tf, asked)), asked["dtype"])


def _whole(tf: Any, asked: Any) -> Any:
    if "minval" not in asked:
        return tf.cast(_field(tf, asked) * RANGE, asked["dtype"])
    low, high = tf.convert_to_tensor(asked["minval"]), tf.convert_to_tensor(asked["maxval"])
    width = tf.cast(high, tf.float64) - tf.cast(low, tf.float64)
    return low + tf.cast(tf.floor(_field(tf, asked) * width), low.dtype)

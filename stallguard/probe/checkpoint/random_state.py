"""Reads and sets the global random number generators of the process.

Python's, numpy's, TensorFlow's eager seeds and global generator, Keras' global seed generator, torch's; only those of
libraries that are imported.
"""

from __future__ import annotations

import sys
import zlib
from typing import Any, Callable


def capture() -> dict[str, Any]:
    """Return the state of every generator that exists, as plain values and arrays."""
    found = {}
    for name, (read, _) in _GENERATORS.items():
        value = read()
        if value is not None:
            found[name] = value
    return found


def restore(states: dict[str, Any]) -> None:
    """Set the generators that are in both `states` and this process."""
    for name, value in states.items():
        if name in _GENERATORS:
            _GENERATORS[name][1](value)


def variables() -> list[Any]:
    """Return the variables that hold the states of the frameworks' generators."""
    found = [getattr(_tf_generator(), "state", None), _keras_generator()]
    return [one for one in found if hasattr(one, "__dict__")]


def globally_seeded() -> bool:
    """Return whether the script has set TensorFlow's global seed."""
    context = _module("tensorflow.python.eager.context")
    return context is not None and context.global_seed() is not None


def digest() -> str:
    """Return a checksum of the state of every generator that exists."""
    return "%08x" % zlib.crc32(_text(sorted(capture().items())).encode())


def same(one: dict[str, Any], other: dict[str, Any], name: str) -> bool:
    """Return whether generator `name` is in the same state in both."""
    return _text(one.get(name)) == _text(other.get(name))


def _text(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return "(%s)" % ",".join(_text(item) for item in value)
    return str(value.tobytes()) if hasattr(value, "tobytes") else repr(value)


def _module(name: str) -> Any:
    return sys.modules.get(name)


def _read_python() -> Any:
    random = _module("random")
    return random.getstate() if random else None


def _write_python(state: Any) -> None:
    random = _module("random")
    if random:
        random.setstate((state[0], tuple(state[1]), state[2]))


def _read_numpy() -> Any:
    random = _module("numpy.random")
    return random.get_state() if random else None


def _write_numpy(state: Any) -> None:
    random = _module("numpy.random")
    if random:
        random.set_state(tuple(state))


def _eager_context() -> Any:
    module = _module("tensorflow.python.eager.context")
    return module.context() if module else None


def _read_eager() -> Any:
    rng = getattr(_eager_context(), "_rng", None)
    return rng.getstate() if rng else None


def _write_eager(state: Any) -> None:
    rng = getattr(_eager_context(), "_rng", None)
    if rng:
        rng.setstate((state[0], tuple(state[1]), state[2]))


def _tf_generator() -> Any:
    return getattr(_module("tensorflow.python.ops.stateful_random_ops"), "global_generator", None)


def _read_tf() -> Any:
    generator = _tf_generator()
    return None if generator is None else generator.state.numpy()


def _write_tf(state: Any) -> None:
    generator = _tf_generator()
    if generator is not None and tuple(generator.state.shape) == tuple(state.shape):
        generator.state.assign(state)


def _keras_generator() -> Any:
    states = _module("keras.src.backend.common.global_state")
    found = states.get_global_attribute("global_seed_generator") if states else None
    return None if found is None else found.state


def _read_keras() -> Any:
    state = _keras_generator()
    numpy = _module("numpy")
    if state is None or numpy is None:
        return None
    return numpy.asarray(state.numpy() if hasattr(state, "numpy") else state)


def _write_keras(value: Any) -> None:
    state = _keras_generator()
    module = _module("keras.src.random.seed_generator")
    if state is None and module is not None:  # Keras makes it at its first use
        state = module.global_seed_generator().state
    if state is not None:
        state.assign(value)


def _read_torch() -> Any:
    torch = _module("torch")
    return torch.get_rng_state().numpy() if hasattr(torch, "get_rng_state") else None


def _write_torch(state: Any) -> None:
    torch = _module("torch")
    if hasattr(torch, "set_rng_state"):
        torch.set_rng_state(torch.from_numpy(state.copy()))


_GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "python": (_read_python, _write_python),
    "numpy": (_read_numpy, _write_numpy),
    "eager": (_read_eager, _write_eager),
    "tensorflow": (_read_tf, _write_tf),
    "keras": (_read_keras, _write_keras),
    "torch": (_read_torch, _write_torch),
}

"""What a step of a library's trainer changes besides gradients: two rows of its batch show it.

A step that lacked memory can run again only if its first run left nothing to which the second adds: a count, a list of
losses, a random number, a row that was scaled in place.  A copy of all that before each step would cost more than the
step of a small model.  So after the error two rows go through the same step, with the same arguments, and what is
otherwise than before is looked for: in the objects that the caller names, in the layers of the script, in the globals
of their modules, in the random generators and in the rows themselves; in containers and the script's own objects to a
depth of three.  All is put back.  What a step keeps elsewhere (a file, a variable of a closure) is not seen.
"""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Any, Callable

from .. import libraries
from ..checkpoint import random_state
from .compare import KEPT, undone
from .shares import buffers_kept, extent, mapped

if TYPE_CHECKING:
    from collections.abc import Iterable

ROWS = 2
DEPTH = 3
MOST = 1000  # items of a container that are looked at
BYTES = 1 << 20  # of an array that is looked at
DRAWS = "its step draws random numbers (%s), whose state before it is not known"
CHANGES = "its step changes %s, and would do so twice"


def seen(objects: Iterable[Any], model: Any, data: Any, step: Callable[[Any], Any], restored: str) -> str:
    """Return in words what a step would change twice, "" if nothing was seen.  Raises what the step raises.

    `objects`: of libraries, whose attributes are looked at too.  `restored`: the generator whose state before the step
    is known.
    """
    torch: Any = sys.modules["torch"]

    def some(leaf: Any) -> Any:
        rows = leaf if extent(leaf) is None else leaf[:ROWS]
        return rows.clone() if isinstance(rows, torch.Tensor) else rows

    rows = mapped(some, data)
    owners = [*objects, *(one for one in model.modules() if _is_own(type(one)))]
    classes = {kind for one in owners for kind in type(one).__mro__ if _is_own(kind)}
    names = {"__main__", *(kind.__module__ for kind in classes)}
    owners += [module for name, module in list(sys.modules.items()) if name in names and _is_scripts(module)]
    kept = [(one, one.grad) for one in model.parameters()]
    looked = [*owners, *classes]
    with undone(owners):
        before, drawn, given = [*map(_attributes, looked)], random_state.capture(), _trace(rows, DEPTH)
        try:
            for one, _ in kept:
                one.grad = None
            with buffers_kept(model) as changed:
                step(rows)
        finally:
            for one, slope in kept:
                one.grad = slope
        after, now = [*map(_attributes, looked)], random_state.capture()
        if _trace(rows, DEPTH) != given:
            changed.append("its batch")
    draws = [name for name in now if name != restored and not random_state.same(drawn, now, name)]
    if draws:
        return DRAWS % ", ".join(sorted(draws))
    for owner, one, other in zip(looked, before, after):
        of = getattr(owner, "__name__", type(owner).__name__)
        changed += ["%s.%s" % (of, name) for name in {**one, **other} if one.get(name) != other.get(name)]
    return CHANGES % changed[0] if changed else ""


def _is_own(kind: type) -> bool:
    """Return whether a class is the script's, or that of a library which is not known."""
    return not libraries.knows(kind.__module__.partition(".")[0]) and kind.__module__ != "builtins"


def _is_scripts(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    return module.__name__ == "__main__" or (isinstance(file, str) and not libraries.is_librarys(file))


def _attributes(owner: Any, depth: int = DEPTH) -> dict[str, Any]:
    return {name: _trace(value, depth) for name, value in list(vars(owner).items())}


def _trace(value: Any, depth: int) -> Any:
    """Return what shows later whether a value is the same, with the same contents."""
    if isinstance(value, (bool, int, float, str, bytes, type(None))):
        return (value,)  # a NaN is the same in a tuple
    if isinstance(value, (*KEPT, tuple)) and depth:
        items = [*dict.keys(value), *dict.values(value)] if isinstance(value, dict) else list(value)
        return len(items), [_trace(one, depth - 1) for one in items[-MOST:]]
    found: list[Any] = [id(value)]
    try:
        generator = random_state.read(value)
        if generator is not None:
            found.append(random_state.text(generator))
        elif hasattr(type(value), "_version"):
            found.append(value._version)
        elif getattr(value, "nbytes", BYTES) < BYTES:
            found.append(zlib.crc32(value.tobytes()))
        elif hasattr(value, "__dict__") and not isinstance(value, type) and depth:
            found.append(_attributes(value, depth - 1) if _is_own(type(value)) else vars(value).get("_update_count"))
    except Exception:  # of an object that answers otherwise: it is known by itself alone
        pass
    return found

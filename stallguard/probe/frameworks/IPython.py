# ruff: noqa: N999 - the file has the name of its library
"""IPython, and the kernels of notebooks: which cell a file of code is.

A kernel compiles each cell under the name of a file that no user knows, /tmp/ipykernel_4711/123456.py: a hash of the
cell's text.  A stack has that name.  So the number that the notebook shows, In [2], is written down with the name when
the cell is compiled, into a file of the run: stacks can be written by a signal's handler in C, or at a crash, and no
code of Python runs then.  That costs 65 us a cell, on two shared cores on which IPython needs 125 us to name it.

A cell that is executed again has the same name and a new number: the newest one holds.  Code without a number of its
own (`store_history=False`, as front ends execute it) is left out, and so is a name that two different texts have
(IPYKERNEL_CELL_NAME, or the same hash): there the number 0 says that the cell is not known.
"""

from __future__ import annotations

import os
import sys

from .. import wire
from ..libraries import Library

NEAR = 6  # frames between IPython's function that runs a cell and the one that looks for it

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from ..context import Context
    from ..patches import Function


def hooks(context: Context) -> dict[str, Callable[[Any], None]]:
    """Return what is hooked."""
    return {"IPython.core.compilerop": lambda module: _number_cells(context, module)}


def _number_cells(context: Context, module: Any) -> None:
    """Have the number of each cell written down when it is compiled."""
    texts: dict[str, int] = {}  # hashes of the cells' texts, by the name of the file; 0 of a name that two have

    def note(name: str, text: str, number: int) -> None:
        if texts.setdefault(name, hash(text)) != hash(text):
            texts[name] = 0
        path = os.path.join(context.settings.pages, wire.CELLS % os.getpid())
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        file = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o600)
        try:
            line = "%d\t%s\n" % (number if texts[name] else 0, name)
            os.write(file, line.encode("utf-8", "surrogateescape"))
        finally:
            os.close(file)

    def make(original: Function) -> Function:
        def cache(self: Any, transformed_code: str, number: int = 0, raw_code: Any = None) -> Any:
            name = original(self, transformed_code, number, raw_code)
            try:
                if number > 0 and "\n" not in name and _has_number():
                    note(name, transformed_code, number)
            except OSError:  # a full disk: the name of the file stays
                pass
            except Exception as error:
                context.surprise("a cell's number", error)
            return name

        return cache

    for name, text, number in _compiled_before():
        try:
            note(name, text, number)
        except OSError:
            break
    context.wrap(module.CachingCompiler, "cache", make)


def _compiled_before() -> list[tuple[str, str, int]]:
    """Return (name, text, number) of the cells that a kernel compiled before the probe was in it.

    Only those whose text the history has under the same number: code without a number of its own got the next one.
    """
    # Not by get_ipython(), which imports a module that is being imported when the probe was there first.
    kind = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    shell = None if kind is None or not kind.initialized() else kind.instance()
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None)
    if shell is None or not isinstance(numbers, dict):
        return []
    history, lines = shell.history_manager.input_hist_parsed, sys.modules["linecache"].cache
    found = []
    for name, number in list(numbers.items()):
        text = "".join(lines[name][2]) if name in lines else ""
        if text and 0 < number < len(history) and history[number].strip() == text.strip():
            found.append((name, text, number))
    return found


def _has_number() -> bool:
    """Return whether the code that is compiled gets the number of its own that the front end shows."""
    frame: Any = sys._getframe(1)
    for _ in range(NEAR):
        if frame is None or frame.f_code.co_name == "run_cell_async":
            break
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("store_history") is True


LIBRARY = Library("IPython", companions=("ipykernel",), hooks=(hooks,))

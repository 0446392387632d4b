"""Runs a function right after a module was imported, and finds the script's API where it is not installed.

Only the loader of a named module is replaced, for the moment of its import; the module gets its own loader back
before its code runs, so nothing that asks for it (inspect, pkgutil, importlib.resources) sees ours.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Callable, Optional

    After = Callable[[ModuleType], None]


class Loader:
    """Stands in for `real` during one import, and calls `after` when the module is there."""

    def __init__(self, real: Any, after: After) -> None:
        self._real = real
        self._after = after

    def create_module(self, spec: Any) -> Any:
        """Make the module as its own loader does."""
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own loader back, run its code, then call `after`."""
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


# Python leaves its own import machinery out of tracebacks, and knows it by the file of the code: an import that
# fails in the script's program reads as it would without us.
Loader.exec_module.__code__ = Loader.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)


class Finder:
    """First on sys.meta_path: lets the others find a module and replaces its loader where somebody waits for it."""

    def __init__(self, surprise: Callable[[str, BaseException], None]) -> None:
        self._waiting: dict[str, list[After]] = {}
        self._surprise = surprise
        self._first: dict[str, Callable[[], None]] = {}

    def first(self, names: tuple[str, ...], function: Callable[[], None]) -> None:
        """Call `function` once, before the first of these modules is imported (now, where one is there)."""
        if any(name in sys.modules for name in names):
            function()
        else:
            self._first = dict.fromkeys(names, function)

    def add(self, targets: dict[str, Callable[[Any], None]]) -> None:
        """Register functions by module name; for a module that is there already they run now."""
        for name, function in targets.items():
            self._waiting.setdefault(name, []).append(function)
            module = sys.modules.get(name)
            if module is not None:
                self._guarded(function, module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that another finder has for a module we wait for, None for every other one."""
        if name in self._first:
            self._arrive(name)
        if name not in self._waiting:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self._imported)
                return spec
        return None

    def _arrive(self, name: str) -> None:
        function, self._first = self._first[name], {}
        try:
            function()
        except Exception as error:
            self._surprise("before " + name, error)

    def _imported(self, module: ModuleType) -> None:
        for function in self._waiting.get(module.__name__, ()):
            self._guarded(function, module)

    def _guarded(self, function: After, module: ModuleType) -> None:
        try:
            function(module)
        except Exception as error:
            self._surprise("hooking " + module.__name__, error)


class Api:
    """Last on sys.meta_path: `import stallguard` works in an environment that has none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """Return the spec of the script's API."""
        if name != "stallguard":
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(self._folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[self._folder])

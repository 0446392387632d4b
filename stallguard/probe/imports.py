"""Runs a function right after a module was imported, and finds the script's API if that is not installed.

Only the loader of a named module is replaced, and only during its import.  The module gets its own loader back before
its code runs, so inspect, pkgutil and importlib.resources find the original one.
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
    """Replaces the loader `real` during one import, and calls `after` when the module is loaded."""

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


# Python omits its own import machinery from tracebacks, and identifies it by the file name of the code.  With this name
# the traceback of an import that fails is the same as without the probe.
Loader.exec_module.__code__ = Loader.exec_module.__code__.replace(
    co_filename="<frozen importlib._bootstrap_external>"
)


class ImportFinder:
    """First on sys.meta_path: has the other finders find a module, and replaces the loader of a registered one."""

    def __init__(self, surprise: Callable[[str, BaseException], None]) -> None:
        self._waiting: dict[str, list[After]] = {}
        self._surprise = surprise
        self._first: dict[str, Callable[[str], None]] = {}

    def first(self, names: tuple[str, ...], function: Callable[[str], None]) -> None:
        """Call function(name) once, before the module `name` is imported; now, if it is imported already."""
        self._first = dict.fromkeys(names, function)
        for name in names:
            if name in sys.modules:
                self._begins(name)

    def add(self, targets: dict[str, Callable[[Any], None]]) -> None:
        """Register functions by module name; those of a module that is imported already run now."""
        for name, function in targets.items():
            self._waiting.setdefault(name, []).append(function)
            module = sys.modules.get(name)
            if module is not None:
                self._guarded(function, module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that another finder has for a registered module, None for any other."""
        if name in self._first:
            self._begins(name)
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

    def _begins(self, name: str) -> None:
        function = self._first.pop(name, None)  # another thread can import it too
        if function is not None:
            try:
                function(name)
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


class ApiFinder:
    """Last on sys.meta_path: `import stallguard` works in an environment in which it is not installed."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Optional[Any]:
        """Return the spec of the script's API."""
        if name != "stallguard":
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(self._folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[self._folder])

"""Run by the training environment's interpreter: prints, as JSON after a mark, what is installed there.

Its arguments are the names of the distributions that matter.
Standard library and Python 3.9 grammar; imports no framework, writes nothing.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import site
import sys
from pathlib import Path

MARK = "stallguard-doctor:"


def packages():
    """Return {name: version} of the distributions named as arguments that are installed."""
    found = {}
    for name in sys.argv[1:]:
        try:
            found[name] = importlib.metadata.version(name) or ""
        except Exception:  # an absent package, or one whose metadata is damaged
            continue
    return found


def plugins():
    """Return the plug-ins that `import tensorflow` loads, of any package."""
    places = [*getattr(site, "getsitepackages", list)(), site.getusersitepackages()]
    folders = [Path(place, "tensorflow-plugins") for place in places]
    return sorted({path.name for folder in folders for path in folder.glob("*") if path.suffix in (".dylib", ".so")})


def openmp():
    """Return the runtimes of OpenMP of macOS: the packages' and conda's, each file once, also if links lead to it."""
    places = [*getattr(site, "getsitepackages", list)(), site.getusersitepackages()]
    folders = [Path(sys.prefix, "lib")]
    for place in map(Path, places):
        folders += [*place.glob("*/lib"), *place.glob("*/.dylibs"), *place.glob("*.dylibs")]
    found = {os.path.realpath(path) for folder in folders for path in folder.glob("lib*omp*.dylib")}
    return sorted(path for path in found if Path(path).name in ("libomp.dylib", "libiomp5.dylib"))


def keras_backend():
    """Return the backend of Keras 3 and the setting that selects it; empty strings if none does."""
    if os.environ.get("KERAS_BACKEND"):
        return [os.environ["KERAS_BACKEND"], "KERAS_BACKEND"]
    path = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser(), "keras.json")
    try:
        return [str(json.loads(path.read_text("utf-8")).get("backend", "")), str(path)]
    except (OSError, ValueError, AttributeError):  # absent, or not what Keras accepts
        return ["", ""]


def translated():
    """Return whether Rosetta translates this interpreter; None if there is no Rosetta."""
    if sys.platform != "darwin":
        return None
    try:
        import ctypes

        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        libc = ctypes.CDLL(None)
        failed = libc.sysctlbyname(b"sysctl.proc_translated", ctypes.byref(value), ctypes.byref(size), None, 0)
        return None if failed else bool(value.value)  # an Intel Mac does not have the key
    except Exception:  # a Python without ctypes
        return None


def sitecustomize():
    """Return where the environment's own sitecustomize is; empty if there is none."""
    try:
        spec = importlib.util.find_spec("sitecustomize")
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec else ""


def facts():
    """Return all of it."""
    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "machine": platform.machine(),
        "translated": translated(),
        "packages": packages(),
        "plugins": plugins(),
        "backend": keras_backend(),
        "sitecustomize": sitecustomize(),
        "openmp": openmp(),
    }


if __name__ == "__main__":
    print(MARK + json.dumps(facts()))

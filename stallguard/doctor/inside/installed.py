"""Run by the training environment's interpreter: prints, as JSON behind a mark, what is installed there.

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
NAMES = (
    "tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly", "tensorflow-metal", "tensorflow-metal-plugin",
    "keras", "tf-keras", "keras-nightly", "torch", "jax", "jaxlib", "jax-metal", "jax-mps",
    "numpy", "protobuf", "h5py", "pyarrow",
)  # fmt: skip


def packages():
    """Return {name: version} of those in NAMES that are installed."""
    found = {}
    for name in NAMES:
        try:
            found[name] = importlib.metadata.version(name) or ""
        except Exception:  # an absent package, or one whose metadata is damaged: either cannot be counted on
            continue
    return found


def plugins():
    """Return the libraries that `import tensorflow` will load, whatever package put them there."""
    places = [*getattr(site, "getsitepackages", list)(), site.getusersitepackages()]
    folders = [Path(place, "tensorflow-plugins") for place in places]
    return sorted(
        {path.name for folder in folders for path in folder.glob("*") if path.suffix in (".dylib", ".so")}
    )


def keras_backend():
    """Return the backend that Keras 3 will use and who says so; empty strings where nobody does."""
    if os.environ.get("KERAS_BACKEND"):
        return [os.environ["KERAS_BACKEND"], "KERAS_BACKEND"]
    path = Path(os.environ.get("KERAS_HOME") or Path("~/.keras").expanduser(), "keras.json")
    try:
        return [str(json.loads(path.read_text("utf-8")).get("backend", "")), str(path)]
    except (OSError, ValueError, AttributeError):  # absent, or not what Keras itself would take
        return ["", ""]


def translated():
    """Tell whether Rosetta translates this interpreter; None where there is no Rosetta to ask."""
    if sys.platform != "darwin":
        return None
    try:
        import ctypes

        value, size = ctypes.c_int(0), ctypes.c_size_t(4)
        libc = ctypes.CDLL(None)
        failed = libc.sysctlbyname(
            b"sysctl.proc_translated", ctypes.byref(value), ctypes.byref(size), None, 0
        )
        return None if failed else bool(value.value)  # an Intel Mac does not know the name
    except Exception:  # a Python without ctypes
        return None


def sitecustomize():
    """Return where the environment's own sitecustomize is; empty where there is none."""
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
    }


if __name__ == "__main__":
    print(MARK + json.dumps(facts()))

"""Says whether code belongs to a library or to the script.

What is the script's is kept in checkpoints, and named as the line that takes the time; so it must not be taken for a
library's, and a library's not for the script's.  A file is a library's if

- it belongs to Python itself, or to the probe;
- it lies below a directory that only installers fill: site-packages, dist-packages;
- metadata in the directory of sys.path that it was imported from name its package ("Recording installed projects":
  RECORD), as `pip install --target` makes them, and as modules of a cluster and directories of PYTHONPATH have them;
- it belongs to a training library, wherever that lies: a clone of Keras that is worked on has no metadata at its side.

Everything else is the script's, also what is installed in editable form: that is how a user installs the own project.
Results are kept by file, so a question costs a look into a dictionary.
"""

from __future__ import annotations

import os
import sys

TRAINING = tuple("keras tf_keras tensorflow torch jax jaxlib flax optax lightning mlx numpy".split())
_PYTHON = os.path.dirname(os.__file__) + os.sep
_PROBE = os.path.dirname(__file__) + os.sep
_API = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_GENERATED = ("<frozen ", "<__array_function__")
_INSTALLED = ("%ssite-packages%s" % (os.sep, os.sep), "%sdist-packages%s" % (os.sep, os.sep))
_known: dict[str, bool] = {}
_recorded: dict[str, frozenset[str]] = {}  # directory -> the names that installers have put there


def is_librarys(file: str) -> bool:
    """Return whether a file of code belongs to a library, Python itself or the probe, not to the script."""
    known = _known.get(file)
    if known is None:
        known = _known[file] = _is_librarys(file)
    return known


def _is_librarys(file: str) -> bool:
    if file.startswith((_PYTHON, _PROBE, _API, *_GENERATED)) or any(part in file for part in _INSTALLED):
        return True
    return _is_training_librarys(file) or _is_recorded(file)


def _is_training_librarys(file: str) -> bool:
    packages = [getattr(sys.modules.get(name), "__file__", None) for name in TRAINING]
    folders = [os.path.split(one) for one in packages if isinstance(one, str)]
    return any(name.startswith("__init__.") and file.startswith(folder + os.sep) for folder, name in folders)


def _is_recorded(file: str) -> bool:
    entries = [one for one in list(sys.path) if one and file.startswith(os.path.join(one, ""))]
    if not entries:
        return False
    place = max(entries, key=len)
    name = file[len(os.path.join(place, "")) :].split(os.sep, maxsplit=1)[0]
    if place not in _recorded:
        _recorded[place] = _names_recorded(place)
    return name in _recorded[place]


def _names_recorded(place: str) -> frozenset[str]:
    """Return the files and packages at the top of a directory that its metadata of distributions name."""
    found: set[str] = set()
    try:
        folders = [one for one in os.listdir(place) if one.endswith(".dist-info")]
    except OSError:
        return frozenset()  # a zip archive, for instance
    for folder in folders:
        try:
            with open(os.path.join(place, folder, "RECORD"), encoding="utf-8", errors="replace") as lines:
                found.update(line.lstrip('"').split(",")[0].split("/")[0] for line in lines)
        except OSError:
            pass  # of what has no record nothing is known: it is the script's
    return frozenset(found)

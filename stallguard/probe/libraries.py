"""Says whether code belongs to a library or to the script.

What is the script's is kept in checkpoints, and named as the line that takes the time; so it must not be taken for a
library's, and a library's not for the script's.  A file is a library's if

- it belongs to Python itself, or to the probe;
- it belongs to a training library, wherever that lies: a clone of Keras that is worked on has no metadata at its side;
- it lies below a directory that only installers fill: site-packages, dist-packages;
- metadata in the directory or archive of sys.path that it was imported from name its package ("Recording installed
  projects": RECORD), as `pip install --target` makes them, and as modules of a cluster and directories of PYTHONPATH
  have them.

The last two do not hold for the program that was started: an installed trainer that runs by `python -m` or its command,
or a script in a folder that has the name of an installer's.

Everything else is the script's, also what is installed in editable form: that is how a user installs the own project.
What setuptools' egg-info names counts for nothing, because such a project has it beside its sources.
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
    is_installed = any(part in file for part in _INSTALLED)
    if file.startswith((_PROBE, _API, *_GENERATED)) or (file.startswith(_PYTHON) and not is_installed):
        return True
    if _is_training_librarys(file):
        return True
    program, folder = _started()
    if file.startswith(program):
        return False
    in_folder = folder and file.startswith(folder)
    is_below = any(part in file[len(folder) - 1 :] for part in _INSTALLED) if in_folder else is_installed
    return is_below or _is_recorded(file)


def _started() -> tuple[tuple[str, ...], str]:
    """Return how paths of the program that was started begin, and the folder of a script that was started by its path.

    By its path: in its folder only the name of that decides nothing.  By its name (`python -m`): its whole package, or
    its file alone.  By a command that an installer has made: the package of the function that this calls.
    """
    main = sys.modules.get("__main__")
    own = getattr(main, "__file__", None)
    if not isinstance(own, str):
        return (), ""
    own, spec = os.path.abspath(own), getattr(main, "__spec__", None)
    is_command = spec is None and os.path.dirname(own) == os.path.dirname(sys.executable)
    called = [one.__module__ for one in list(vars(main).values()) if isinstance(one, type(_started))]
    names = [getattr(spec, "parent", None) or ""] if not is_command else called
    packages = [sys.modules.get(str(name).partition(".")[0]) for name in names if name]
    places = [place for one in packages for place in getattr(one, "__path__", ())]
    folder = os.path.join(os.path.dirname(own), "") if spec is None and not is_command else ""
    return (own, *(os.path.join(place, "") for place in places)), folder


def _is_training_librarys(file: str) -> bool:
    packages = [getattr(sys.modules.get(name), "__file__", None) for name in TRAINING]
    folders = [os.path.split(one) for one in packages if isinstance(one, str)]
    return any(name.startswith("__init__.") and file.startswith(folder + os.sep) for folder, name in folders)


def _is_recorded(file: str) -> bool:
    entries = [
        one for one in [entry or os.getcwd() for entry in sys.path] if file.startswith(os.path.join(one, ""))
    ]
    if not entries:
        return False
    place = max(entries, key=len)
    name = file[len(os.path.join(place, "")) :].split(os.sep, maxsplit=1)[0]
    if place not in _recorded:
        _recorded[place] = frozenset(
            line.lstrip('"').split(",")[0].split("/")[0]
            for record in _records(place)
            for line in record.splitlines()
        )
    return name in _recorded[place]


def _records(place: str) -> list[str]:
    """Return the lists of files of the distributions that are installed in a directory or an archive.

    Of what has no such list nothing is known: it is the script's.
    """
    found: list[bytes] = []
    try:
        if os.path.isfile(place):
            from zipfile import ZipFile

            with ZipFile(place) as archive:
                names = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
                found = [archive.read(name) for name in names if name.count("/") == 1]
        else:
            for folder in os.listdir(place):
                record = os.path.join(place, folder, "RECORD")
                if folder.endswith(".dist-info") and os.path.isfile(record):
                    with open(record, "rb") as file:
                        found.append(file.read())
    except Exception:  # of an archive that is damaged, for instance
        pass
    return [one.decode("utf-8", "replace") for one in found]

"""What is known of each library, and whether code belongs to a library or to the script.

A module of frameworks/ holds all that the probe knows of one library, and has its name: frameworks/torch.py has the
record LIBRARY of `torch`.  So a library is added by one file.  A record is read when its library is about to be
imported, or when it is asked for; the start of a process reads their names alone.

What is the script's is kept in checkpoints, and named as the line that takes the time; so it must not be taken for a
library's, and a library's not for the script's.  A file is a library's if

- it belongs to Python itself, or to the probe;
- it belongs to a library that frameworks/ knows, wherever that lies: a clone of Keras that is worked on has no metadata
  at its side;
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional, Union

    # Functions that run once, with the part's own object, other words and the module, when that was imported: a
    # function, or where it is: (module of the probe, name, other words).
    PartPatches = dict[str, Union[Callable[[Any, Any], None], tuple[str, ...]]]

_PYTHON = os.path.dirname(os.__file__) + os.sep
_PROBE = os.path.dirname(__file__) + os.sep
_API = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_GENERATED = ("<frozen ", "<__array_function__")
_INSTALLED = ("%ssite-packages%s" % (os.sep, os.sep), "%sdist-packages%s" % (os.sep, os.sep))
_FILES = os.listdir(_PROBE + "frameworks")
NAMES = tuple(sorted(name[:-3] for name in _FILES if name.endswith(".py") and not name.startswith("_")))
known: list[Library] = []  # the records that were read; other threads go through it
_by_package: dict[str, Optional[Library]] = {}
_known: dict[str, bool] = {}
_recorded: dict[str, frozenset[str]] = {}  # directory -> the names that installers have put there


class Library:
    """What is known of one library.  What a record leaves out is not so, or there is nothing of it.

    `name`: the package that a script imports.
    `trains`: a process that imports it can train: it is watched from then on, and its version is in the hello.
    `computes`: its version, and what its functions compute, can be part of a checkpoint.
    `packages`: those whose functions the training waits for, and whose classes are described here.
    `companions`: packages on top of it, which are no code of the script's either.
    `hooks`: each returns {module: function(module)} for what records the training's progress.
    `patches`: the same for the other parts of the probe (bootstrap.PARTS).
    `array_waits`: names of functions that wait for the device: its own in Python, and those in C that any code calls.
    `has_peers`: whether other processes take part in the training, so that a call can wait for them.
    `stateless`: classes that have no pickle, or only their name as one, and no state of a training.
    `is_tensor`: whether an object of its classes is a tensor with a value, not a symbolic one.
    `is_fixed`: its tensors cannot be changed.
    `tensor_of`: makes a tensor of an array, or writes it into an existing one that is passed.
    `variable_of`: makes a variable of an array; the second argument is whether it is trained.
    `distributions`: names under which it, and what belongs to it, is installed.
    `runs_keras`: Keras 3 can use it as its backend.
    `generators`: by name, what reads and what sets the state of a global random number generator; None: there is none.
    `own_generators`: the same of a generator that is an object.  The second gets the name of its class, the state, and
    the object that exists or None, and returns that or a new one; LookupError for a class of which it makes none.
    `displays`: (module, function) of threads that only show progress: asleep, they end no wait.
    `caches`: by name, what reads the bytes that its allocator holds and those of them that arrays use, None if they are
    not known or not the machine's, and what gives back the rest.
    """

    def __init__(
        self,
        name: str,
        *,
        trains: bool = False,
        computes: bool = False,
        packages: tuple[str, ...] = (),
        companions: tuple[str, ...] = (),
        hooks: tuple[Callable[[Any], dict[str, Callable[[Any], None]]], ...] = (),
        patches: Optional[dict[str, PartPatches]] = None,
        array_waits: tuple[str, ...] = (),
        has_peers: Optional[Callable[[], bool]] = None,
        stateless: tuple[str, ...] = (),
        is_tensor: Optional[Callable[[Any], bool]] = None,
        is_fixed: bool = False,
        tensor_of: Optional[Callable[[Any, Any], Any]] = None,
        variable_of: Optional[Callable[[Any, bool], Any]] = None,
        distributions: tuple[str, ...] = (),
        runs_keras: bool = False,
        generators: Optional[dict[str, tuple[Callable[[], Any], Callable[[Any], None]]]] = None,
        own_generators: Optional[tuple[Callable[[Any], Any], Callable[[str, Any, Any], Any]]] = None,
        displays: tuple[tuple[str, str], ...] = (),
        caches: Optional[dict[str, tuple[Callable[[], Optional[tuple[int, int]]], Callable[[], object]]]] = None,
    ) -> None:
        self.name = name
        self.trains = trains
        self.computes = computes or trains
        self.packages = packages or (name,)
        self.companions = companions
        self.hooks = hooks
        self.patches = patches or {}
        self.array_waits = array_waits
        self.has_peers = has_peers
        self.stateless = stateless
        self.is_tensor = is_tensor
        self.is_fixed = is_fixed
        self.tensor_of = tensor_of
        self.variable_of = variable_of
        self.distributions = distributions
        self.runs_keras = runs_keras
        self.generators = generators or {}
        self.own_generators = own_generators
        self.displays = displays
        self.caches = caches or {}


def read(name: str) -> Library:
    """Return the record of a library of NAMES; it can raise."""
    record: Library = __import__("%s.%s" % (__package__, "frameworks." + name), fromlist=["LIBRARY"]).LIBRARY
    if record not in known:
        known.append(record)
        _by_package.clear()
    return record


def every() -> list[Library]:
    """Return the records of all libraries: the table of the supervisor's side."""
    return [read(name) for name in NAMES]


def imported() -> list[Library]:
    """Return the records of the libraries that this process has imported."""
    return [read(name) for name in NAMES if name in sys.modules]


def have_peers() -> bool:
    """Return whether other processes take part in the training, so that a call can wait for them.

    The sender's thread asks, too, and must not import a record: those that were read are asked.
    """
    for library in known:
        try:
            if library.has_peers is not None and library.has_peers():
                return True
        except Exception:  # noqa: S112 - a version that keeps this elsewhere
            continue
    return False


def version(name: str) -> object:
    """Return the version of a library, None if it was not imported or has none."""
    # From the dictionary: an attribute of the module itself can start one of TensorFlow's lazy imports.
    # A package of several distributions, as MLX's, has no version of its own.
    modules = [sys.modules[one] for one in (name, name + ".core") if one in sys.modules]
    return next((vars(one)["__version__"] for one in modules if "__version__" in vars(one)), None)


def of(package: str) -> Optional[Library]:
    """Return the record of the library to which a package belongs, None if there is none."""
    if package not in _by_package:
        records = [read(package)] if package in NAMES else imported()
        found = next((record for record in records if package in record.packages), None)
        _by_package[package] = found
    return _by_package[package]


def knows(package: str) -> bool:
    """Return whether a package belongs to a library that has a record, or lies on top of one."""
    return any(package in (*record.packages, *record.companions) for record in imported())


def of_class(kind: Any) -> Optional[Library]:
    """Return the record of the library that defines a class, None if there is none."""
    return of(str(kind.__module__).partition(".")[0])


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
    if _is_known_librarys(file):
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


def _is_known_librarys(file: str) -> bool:
    names = [name for record in known for name in (*record.packages, *record.companions)]
    packages = [getattr(sys.modules.get(name), "__file__", None) for name in names]
    folders = [os.path.split(one) for one in packages if isinstance(one, str)]
    return any(name.startswith("__init__.") and file.startswith(folder + os.sep) for folder, name in folders)


def _is_recorded(file: str) -> bool:
    entries = [one for one in [entry or os.getcwd() for entry in sys.path] if file.startswith(os.path.join(one, ""))]
    if not entries:
        return False
    place = max(entries, key=len)
    name = file[len(os.path.join(place, "")) :].split(os.sep, maxsplit=1)[0]
    if place not in _recorded:
        _recorded[place] = frozenset(
            line.lstrip('"').split(",")[0].split("/")[0] for record in _records(place) for line in record.splitlines()
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

"""From the words after `stallguard run` to the argv of a process, and whether the probe can be loaded into it.

COMMAND is `train.py ARGS`, `-m package.module ARGS`, or any executable.

One rule says which Python runs a script, for `run`, `drill`, `doctor` and jobs.  In this order: --python, the active
environment, `.venv` or `venv` of the project (the directories from the working one upwards, as uv and poetry look for
it), python3 on PATH, stallguard's own.  A project whose environment is elsewhere (poetry, pipenv, pixi, conda) is
recognised by its files: the choice then says how to select that environment.

Pure except for `Disk`, which reads the file system: the environment and the search along PATH enter as arguments.  This
module must not start anything.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from stallguard.errors import CANNOT_RUN, NOT_FOUND, USAGE, StallguardError, nearest

SCRIPTS = (".py", ".pyw", ".pyc", ".pyz")
STARTERS = frozenset({  # programs that start others with the same environment
    "sh", "bash", "zsh", "dash", "ksh", "fish", "env", "nice", "nohup", "time", "timeout", "stdbuf", "setsid",
    "ionice", "taskset", "numactl", "arch", "caffeinate", "uv", "uvx", "poetry", "pipenv", "pdm", "hatch", "rye",
    "conda", "mamba", "micromamba", "pixi", "make", "just", "mpirun", "mpiexec", "srun", "tini", "xvfb-run",
})  # fmt: skip
BARRED = {  # programs that start others without the environment, or elsewhere
    "sudo": "sudo gives the program another environment",
    "doas": "doas gives the program another environment",
    "su": "su gives the program another environment",
    "docker": "docker runs it in a container",
    "podman": "podman runs it in a container",
    "ssh": "ssh runs it on another machine",
}
# `re` compiles them when they are used first: the start of most trainings need not wait for all of them.
_PYTHON = r"(python|pypy)[0-9.]*t?$"
# W, X, c and m take a value, in the same word or the next one.
_OPTION = r"-(?P<flags>[^WXcm-]*)(?P<last>[WXcm]?)(?P<value>.*)(?<=..)$"
_MODULE = r"[^\W\d]\w*(\.[^\W\d]\w*)*$"
_SHUT = {
    "I": "Python was started with -I, which ignores PYTHONPATH",
    "E": "Python was started with -E, which ignores PYTHONPATH",
    "S": "Python was started with -S, which leaves sitecustomize out",
}

Which = Callable[[str], str | None]

# The variable of an activated environment, and the kind of that environment.
ACTIVE = (("VIRTUAL_ENV", "the virtual environment"), ("CONDA_PREFIX", "the conda environment"))
LOCAL = (".venv", "venv")
# A file of a project whose environment is elsewhere: how to start a program in that environment.
SIGNS = (
    ("poetry.lock", "poetry run"),
    ("uv.lock", "uv run"),
    ("Pipfile", "pipenv run"),
    ("pixi.toml", "pixi run"),
    ("pdm.lock", "pdm run"),
    ("environment.yml", "conda run -n NAME --no-capture-output"),
    ("environment.yaml", "conda run -n NAME --no-capture-output"),
)


class FileSystem(Protocol):
    """Queries of the file system."""

    def kind(self, path: str) -> str:
        """Return file, executable, directory or missing."""

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if it cannot be read."""

    def which(self, program: str) -> str | None:
        """Return the path of a program on PATH."""

    def first_line(self, path: str) -> bytes:
        """Return the beginning of a file; empty if it cannot be read."""


class Disk:
    """The file system as seen from the working directory, with the user's PATH."""

    def __init__(self, env: Mapping[str, str], cwd: str = ".") -> None:
        """Resolve paths from `cwd`."""
        self._path, self._cwd = env.get("PATH"), Path(cwd)

    def kind(self, path: str) -> str:
        """Return file, executable, directory or missing."""
        where = self._cwd / path
        if where.is_dir():
            return "directory"
        if not where.exists():
            return "missing"
        return "executable" if os.access(where, os.X_OK) else "file"

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; none if it cannot be read."""
        try:
            return sorted(entry.name for entry in (self._cwd / directory).iterdir())
        except OSError:
            return []

    def which(self, program: str) -> str | None:
        """Return the path of a program, on PATH if it is a bare name.

        As shutil.which, whose module takes 3 ms for which the start of the training would wait.
        """
        places = [""] if "/" in program else (self._path or os.defpath).split(os.pathsep)
        paths = [os.path.join(place, program) for place in places]  # noqa: PTH118 - a Path would drop a leading ./
        return next((path for path in paths if Path(path).is_file() and os.access(path, os.X_OK)), None)

    def first_line(self, path: str) -> bytes:
        """Return the beginning of a file; empty if it cannot be read."""
        try:
            with (self._cwd / path).open("rb") as file:
                return file.readline(256)
        except OSError:
            return b""


class Command(NamedTuple):
    """What is started.  `interpreter`: the chosen one; None if the user named a program."""

    argv: list[str]
    interpreter: InterpreterChoice | None = None


class ProbeReach(NamedTuple):
    """Whether the probe can be loaded, and why not."""

    injectable: bool
    why: str = ""


def resolve(words: Sequence[str], interpreter: Callable[[], InterpreterChoice], place: FileSystem) -> Command:
    """Return what to start for COMMAND; `interpreter` is called only if a script or module needs one.

    Raises StallguardError: 2 if it is not a command, 126 if it cannot be run, 127 if it does not exist.
    """
    if not words or not words[0]:
        raise StallguardError("nothing to run", cure="name a script: stallguard run train.py", code=USAGE)
    first = words[0]
    if first == "-m":
        if len(words) < 2 or not re.match(_MODULE, words[1]):  # noqa: PLR2004 - "-m" and the name
            given = f", not {words[1]!r}" if len(words) > 1 else ""
            raise StallguardError(
                f"-m needs the name of a module{given}", cure="stallguard run -m package.module", code=USAGE
            )
    elif first.startswith("-"):
        raise StallguardError(
            f"{first} is neither a script nor a program",
            cure=f"to pass options to Python, name it: stallguard run python {' '.join(words)}",
            code=USAGE,
        )
    elif not _is_script(first, place):
        return Command([_program(first, place), *words[1:]])
    chosen = interpreter()
    return Command([chosen.path, *words], chosen)


def _is_script(word: str, place: FileSystem) -> bool:
    kind = place.kind(word)
    if kind == "directory":
        if "__main__.py" in place.names(word):
            return True
        cure = f"name a script: {word.rstrip('/')}/train.py"
        raise StallguardError(f"{word} is a directory", cure=cure, code=CANNOT_RUN)
    if not word.endswith(SCRIPTS):
        return False
    if kind == "missing":
        raise _not_found(word, place)
    return True


def _program(word: str, place: FileSystem) -> str:
    found = None if "/" in word else place.which(word)
    if found:
        return found
    kind = place.kind(word)
    if kind == "missing":
        raise _not_found(word, place)
    if kind != "file":
        return word if "/" in word else f"./{word}"
    if word.endswith(".ipynb"):
        cure = f"stallguard run jupyter nbconvert --to notebook --execute {word}, or make a script of it"
        raise StallguardError(f"{word} is a notebook, not a program", cure=cure, code=CANNOT_RUN)
    runner = "python" if b"python" in place.first_line(word) else "bash"
    cure = f"chmod +x {word}, or stallguard run {runner} {word}"
    raise StallguardError(f"{word} is not executable", cure=cure, code=CANNOT_RUN)


def _not_found(word: str, place: FileSystem) -> StallguardError:
    directory, name = os.path.split(word)
    names = place.names(directory or ".")
    near = f"{name}.py" if f"{name}.py" in names else nearest(name, names)
    what = "no such script" if word.endswith(SCRIPTS) else "no such program"
    if near:
        cure = f"did you mean {os.path.join(directory, near)}?"  # noqa: PTH118 - as typed
    elif "/" in word or word.endswith(SCRIPTS):
        cure = "check the path and the working directory"
    else:
        cure = "it is neither on PATH nor in the working directory"
    return StallguardError(f"{what}: {word}", cure=cure, code=NOT_FOUND)


def reach(argv: Sequence[str], place: FileSystem) -> ProbeReach:
    """Return whether PYTHONPATH and sitecustomize load the probe in what `argv` starts."""
    name = os.path.basename(argv[0])  # noqa: PTH119 - a name, not a place
    if name in BARRED:
        return ProbeReach(False, BARRED[name])
    if re.match(_PYTHON, name):
        return _flags(argv[1:])
    line = place.first_line(argv[0])
    if name in STARTERS or (line.startswith(b"#!") and b"python" not in line):
        for position, word in enumerate(argv[1:], start=1):
            started = os.path.basename(word)  # noqa: PTH119 - as above
            if started in BARRED:
                return ProbeReach(False, BARRED[started])
            if re.match(_PYTHON, started):
                return _flags(argv[position + 1 :])
        return ProbeReach(True)  # the probe reaches a Python that is not named here
    if line.startswith(b"#!"):
        return _flags(line.decode(errors="replace").split()[1:])
    return ProbeReach(False, f"{name} is not a Python program")


def _flags(words: Sequence[str]) -> ProbeReach:
    """Check Python's own one-letter options, up to the script, -c or -m; they can be combined, as in -uI."""
    rest = iter(words)
    for word in rest:
        parts = re.match(_OPTION, word)
        if word == "--check-hash-based-pycs":
            next(rest, None)
        elif word.startswith("--"):
            if word == "--":
                break
        elif not parts:
            break
        else:
            shut = next((letter for letter in parts["flags"] if letter in _SHUT), None)
            if shut is not None:
                return ProbeReach(False, _SHUT[shut])
            if parts["last"] in ("c", "m"):
                break
            if parts["last"] and not parts["value"]:
                next(rest, None)
    return ProbeReach(True)


class InterpreterChoice(NamedTuple):
    """An interpreter, and why it was chosen, for the journal."""

    path: str
    why: str
    hint: str = ""  # how to select the project's environment, if it was not found


def choose_interpreter(
    python: str | None,
    env: Mapping[str, str],
    which: Which,
    own: str = sys.executable,
    cwd: Path | None = None,
    there: Callable[[Path], bool] = Path.exists,
) -> InterpreterChoice:
    """Return the interpreter: `python`, else the active environment's, the project's, PATH's python3, stallguard's.

    `python`: the option, a path, a name on PATH or the directory of an environment; empty if not given.
    `which`: as shutil.which, None if it cannot be run.  `cwd`: where the project is searched for,
    None: nowhere; `there`: whether a file exists.  Raises StallguardError (127) if `python` does not exist.
    """
    if python:
        for candidate in (python, f"{python.rstrip('/')}/bin/python"):
            if found := which(candidate):
                return InterpreterChoice(found, "chosen with --python")
        raise StallguardError(
            f"no such interpreter: {python}",
            cure="give --python the path of a Python, a name on PATH, or an environment's directory",
            code=NOT_FOUND,
        )
    for variable, kind in ACTIVE:
        home = env.get(variable)  # which remains after the environment is deleted
        if home and (found := which(f"{home}/bin/python")):
            return InterpreterChoice(found, f"{kind} {home} is active")
    upwards = (cwd, *cwd.parents[:-1]) if cwd is not None else ()
    for environment in (directory / name for directory in upwards for name in LOCAL):
        if found := which(f"{environment}/bin/python"):
            return InterpreterChoice(found, f"the environment {environment} of the project")
    hint = ""
    for sign, starter in ((directory / name, starter) for directory in upwards for name, starter in SIGNS):
        if there(sign):
            hint = f"{sign} belongs to another environment: {starter} stallguard run, or --python PATH"
            break
    if python3 := which("python3"):
        return InterpreterChoice(python3, "python3 on PATH; no environment is active", hint)
    return InterpreterChoice(own, "stallguard's own: there is no active environment and no python3", hint)

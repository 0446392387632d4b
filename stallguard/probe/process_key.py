"""Identifies a Python process among those of a run, by a name that is the same in the next attempt.

A run can train several times: a shell loop over seeds, a launcher, trainings side by side.  What an attempt keeps for
one of them must never reach another.  So each process has a place: a key made of what it was started with (its
arguments, its directory, the variables that the script or launcher set for it, the place of the Python process that
started it), and its number among the processes of that key in this attempt, in the order of their starts.

A job moves between machines, on which the same project has another path.  If its root is set (PROJECT), paths below it
are part of the key as seen from there, those in the interpreter's environment as seen from that, and variables that
describe the machine or its user are none.

The number is the length of a file to which each process appends one byte: appending is atomic.  Standard library only,
Python 3.9 grammar, and only imports that every start of Python makes.  `of` can raise; the caller handles that.
"""

from __future__ import annotations

import os
import sys
from _blake2 import blake2b

from . import settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

FOLDER = "places"  # in the directory of the pages
VARIABLE = "STALLGUARD_PLACE"  # of the process that started this one
REFERENCE = "environment"  # in the directory of the pages: the digests of the attempt's first process
_DIGITS = str.maketrans("", "", "0123456789")
# Set at each start by shells, terminals, launchers and service managers: they do not identify a training.
_VOLATILE = frozenset((
    "_", "SHLVL", "OLDPWD", "PWD", "COLUMNS", "LINES", "TMPDIR", "TMP", "TEMP", "RANDOM", "SECONDS", "INVOCATION_ID",
    "JOURNAL_STREAM", "CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS", "MASTER_PORT", "MASTER_ADDR", "PYTHONPATH",
    "PYTHONHASHSEED", "__PYVENV_LAUNCHER__",
))  # fmt: skip
_VOLATILE_STARTS = ("STALLGUARD_", "JPY_", "TORCHELASTIC_", "WANDB_", "XPC_", "TERM", "LC_", "KMP_")
# Of a machine, its user, or an environment that is elsewhere there; left out if the project's root is set.
_OF_MACHINE = frozenset((
    "HOME", "PATH", "USER", "LOGNAME", "USERNAME", "SHELL", "HOST", "HOSTNAME", "MAIL", "MANPATH", "INFOPATH",
    "PYTHONHOME", "VIRTUAL_ENV", "VIRTUAL_ENV_PROMPT", "LD_LIBRARY_PATH", "SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY",
))  # fmt: skip
_OF_MACHINE_STARTS = ("CONDA_", "UV_", "DYLD_", "XDG_", "HOMEBREW_", "PYENV_")
# Of the environment that Python runs in; "" for a Python of the system, in whose folders there are also other files.
PREFIX = sys.prefix if sys.prefix != sys.base_prefix else ""
_ROOT, _ENVIRONMENT = "{project}", "{environment}"
# The connection file of a notebook's kernel: of nbclient (nbconvert, papermill) from tempfile, of jupyter_client.
_KERNEL_FILE = r"(^|[/=])[^=]*/(?:tmp[a-z0-9_]{8}|kernel-[0-9a-z-]{20,60})\.json$"
_VOLATILE_ENDS = ("_PID", "_PORT", "_SOCK", "_SOCKET", "_RUN_ID", "_SESSION_ID")


def of(environment: MutableMapping[str, str]) -> str:
    """Return the place of this process, "key-number", and set it for the processes that this one starts.

    Raises OSError or ValueError if the directory of the pages cannot be used.
    """
    # Without the interpreter's own path; Python 3.9 keeps only the program's arguments.
    arguments = list(getattr(sys, "orig_argv", ["", *list(getattr(sys, "argv", []))])[1:])
    wish = settings.of(environment)
    if wish.added:
        import shlex

        added = shlex.split(wish.added)
        arguments = arguments[: -len(added)] if arguments[-len(added) :] == added else arguments
    delta = _delta(os.path.join(wish.pages, REFERENCE), digests(environment, wish.project))
    name = key(arguments, os.getcwd(), delta, environment.get(VARIABLE, ""), wish.project, wish.rows)
    folder = os.path.join(wish.pages, FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, "%s-%d" % (name, wish.token))
    file = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600
    )
    try:
        os.write(file, b".")
        number = os.lseek(file, 0, os.SEEK_CUR)
    finally:
        os.close(file)
    place = "%s-%d" % (name, number)
    environment[VARIABLE] = place
    return place


def key(
    arguments: list[str], folder: str, delta: Mapping[str, str], parent: str = "", root: str = "", rows: int = 0
) -> str:
    """Return the key of a process: 16 hexadecimal digits.

    `delta`: the digests of variables that only it has; `parent`: the place of the process that started it; `root`: of
    the project, "" if it has the same path everywhere; `rows`: the batch size that stallguard writes into arguments.
    """
    words = [steady(portable(word, root, PREFIX), rows) for word in arguments]
    parts = [*words, "", portable(folder, root), parent]
    parts += ["%s=%s" % pair for pair in sorted(delta.items())]
    return _digest("\0".join(parts))


def digests(environment: Mapping[str, str], root: str) -> dict[str, str]:
    """Return {name: digest of the value} of the variables that identify a process.  `root`: see `key`."""
    return {
        name: _digest(portable(value, root))
        for name, value in environment.items()
        if name not in _VOLATILE
        and not name.startswith(_VOLATILE_STARTS)
        and not name.endswith(_VOLATILE_ENDS)
        and not (root and (name in _OF_MACHINE or name.startswith(_OF_MACHINE_STARTS)))
    }


def portable(text: str, root: str, prefix: str = "") -> str:
    """Return a text with each path below `root`, and below `prefix`, as seen from there: "{project}/data".

    `root`: of the project, "" if nothing is to change; `prefix`: of the interpreter's environment.
    """
    if not root:
        return text
    places = {root: _ROOT, os.path.realpath(root): _ROOT}  # a working directory has no links, an argument can
    if prefix:
        places.setdefault(prefix, _ENVIRONMENT)
    for place in sorted(places, key=len, reverse=True):  # one can be inside of the other
        text = _replaced(text, place, places[place])
    return text


def native(text: str, root: str) -> str:
    """Return a path as it is on this machine: what `portable` made of it, undone."""
    is_below = root and (text == _ROOT or text.startswith(_ROOT + "/"))
    return root + text[len(_ROOT) :] if is_below else text


def _replaced(text: str, place: str, name: str) -> str:
    """Replace the path `place` where it is whole: not /a/b in /a/bc, nor in /x/a/b; but in --data=/a/b:/a/b/c."""
    parts, begin, found = [], 0, text.find(place)
    while found >= 0:
        end = found + len(place)
        before, after = text[found - 1 : found], text[end : end + 1]
        is_begin = text[:found].endswith("://") or not (before.isalnum() or before in (*"._-/",))
        if is_begin and not (after.isalnum() or after in (*"._-",)):
            parts += [text[begin:found], name]
            begin = end
        found = text.find(place, end)
    return "".join(parts) + text[begin:]


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _delta(path: str, own: dict[str, str]) -> dict[str, str]:
    """Return those of the digests `own` that differ from those of the attempt's first process.

    Its file `path` has lines "digest name".  Without that file no variable counts.
    """
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            pairs = [line.rstrip("\n").partition(" ") for line in file]
    except OSError:
        return {}
    reference = {name: digest for digest, _, name in pairs}
    changed = {name: digest for name, digest in own.items() if reference.get(name) != digest}
    changed.update((name, "") for name in reference if name not in own)
    return changed


def steady(word: str, rows: int) -> str:
    """Return an argument without what differs at each start: pipe numbers, a kernel's file, stallguard's batch size.

    A number in a path, such as that of "runs/exp8/train.py", stays: it is the same in each attempt, unlike `rows`.
    """
    if word.endswith(".json"):
        import re

        word = re.sub(_KERNEL_FILE, r"\1{kernel}", word)
    if "multiprocessing" in word or "spawn_main" in word:
        return word.translate(_DIGITS)
    if rows and str(rows) in word:
        import re

        size = r"(?<!\d)%s(?!\d)" % re.escape(str(rows))
        return re.sub("(?<==)%s$" % size if os.sep in word else size, "{batch}", word)
    return word

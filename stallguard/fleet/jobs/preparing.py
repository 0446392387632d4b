"""Prepares a job on this machine: brings its code (unpacking.py), and finds or makes the environment that runs it.

    fleet/environments/<key>/         a virtual environment, shared by all jobs that need the same
    fleet/environments/<key>.whole    it was made completely, and when
    fleet/environments/<key>.lock     held while it is made
    fleet/environments/<key>.log      what uv printed

**What is shared.**  The key is made of uv.lock, pyproject.toml, .python-version, and the system and processor.  So the
jobs of a sweep, and those of the next commit, share an environment of gigabytes.  That holds only if nothing of the
project itself is in it.  If the project, or a member of its workspace, is a package that uv installs, uv links to its
folder (an editable install, as `uv sync` makes it on the user's machine).  Then the folder, which belongs to one job
and one digest of the code, is part of the key, and the code of one job is never imported by another.  It is no copy in
site-packages, because what is there counts as a library, whose state a checkpoint does not keep.  What uv installs
beside it comes from its cache as links, so a further environment takes a second.

Without a lock file the interpreter of the worker runs the job: what is not locked is not the same on two machines.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from stallguard.errors import UNREADABLE
from stallguard.fleet.jobs import unpacking
from stallguard.fleet.store import Store, orders
from stallguard.fleet.store.orders import Submission
from stallguard.fleet.store.records import Damaged
from stallguard.host import tool
from stallguard.storage import paths, private

INTERPRETER = "--python"  # the option of `run` that names an interpreter
LIMIT = 900.0  # s; a TensorFlow of 600 MB takes minutes on a slow line
MOST_OUTPUT = 16 << 20  # bytes
LOCK, PROJECT, PYTHON = "uv.lock", "pyproject.toml", ".python-version"
LOCAL = ("editable", "directory")  # sources in uv.lock that are folders of the project, which uv installs
# Of another environment, or set by this module.
NOT_PASSED = (
    "VIRTUAL_ENV", "CONDA_PREFIX", "UV_PROJECT_ENVIRONMENT", "UV_PROJECT", "PYTHONHOME", "PYTHONPATH",
)  # fmt: skip
KEPT = 30 * 86400.0  # s without use; to make one again can need a network
LINES, LENGTH = 6, 600  # of a reason
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]+@")
_BEGINS = re.compile(r"\s*(error|fatal)\b|\s*[\u00d7x] ")


class EnvironmentImpossible(Exception):
    """The environment of a job cannot be made on this machine; the text gives the reason."""


def interpreter(
    project: Path, below: str, wanted: str, env: Mapping[str, str], *, own: str = sys.executable,
    limit: float = LIMIT, is_given_up: Callable[[], bool] = lambda: False,
) -> str:  # fmt: skip
    """Return the interpreter that runs a command in the folder `below` an unpacked project.

    `wanted`: the option --python of its submission, "" if there is none; `own`: that of the worker; `limit`: seconds
    for making an environment; `is_given_up`: uv is ended if it says so.  Raises EnvironmentImpossible, and OSError.
    """
    if wanted:
        return wanted
    place = _locked_place(project, below)
    if place is None:
        return own
    folder, lock = place
    environment = home() / key(folder, lock, project)
    private.ensure(home())
    with private.locked(environment.with_suffix(".lock")):
        python = environment / "bin" / "python"
        whole = environment.with_suffix(".whole")
        # Its interpreter is a link, which an update of the system can break.
        if not (whole.exists() and os.access(python, os.X_OK)):
            whole.unlink(missing_ok=True)
            shutil.rmtree(environment, ignore_errors=True)
            _make(environment, folder, env, limit, is_given_up)
        whole.touch()
    return str(python)


def home() -> Path:
    """Return the directory of all environments."""
    return paths.home() / "fleet" / "environments"


def remove_unused(busy: Collection[str], kept: float = KEPT) -> list[Path]:
    """Remove the environments that were not used for `kept` seconds, and return them.  Raises OSError.

    `busy`: interpreters of runs of this machine: what they use stays, and counts as used now.
    """
    removed = []
    for whole in sorted(home().glob("*.whole")):
        environment = whole.with_suffix("")
        if any(Path(python).is_relative_to(environment) for python in busy):
            whole.touch()
        with private.locked(environment.with_suffix(".lock")):
            if time.time() - whole.stat().st_mtime <= kept:
                continue
            whole.unlink()
            shutil.rmtree(environment, ignore_errors=True)
            environment.with_suffix(".log").unlink(missing_ok=True)
            removed.append(environment)
    return removed


def _locked_place(project: Path, below: str) -> tuple[Path, Path] | None:
    """Return the folder in which uv is to run and the lock file that it uses there; None: there is no lock file.

    A member of a workspace has the lock file of the workspace, and an environment of its own.
    """
    inside = (project / below).resolve()
    upwards = [one for one in (inside, *inside.parents) if one.is_relative_to(project.resolve())]
    lock = next((one / LOCK for one in upwards if (one / LOCK).is_file()), None)
    folder = next((one for one in upwards if (one / PROJECT).is_file()), None)
    return (folder, lock) if lock and folder and folder.is_relative_to(lock.parent) else None


def key(folder: Path, lock: Path, project: Path) -> str:
    """Return the name of the environment that uv makes in `folder` by the file `lock`.  Raises OSError."""
    made = hashlib.sha256()
    for file in (lock, lock.with_name(PROJECT), folder / PROJECT, lock.with_name(PYTHON), folder / PYTHON):
        content = file.read_bytes() if file.is_file() else b"-"
        made.update(b"%d " % len(content) + content)
    where = project.resolve() if installs_code(lock.read_text("utf-8", "replace")) else ""
    about = (folder.relative_to(lock.parent), where, sys.platform, platform.machine())
    made.update("\0".join(map(str, about)).encode("utf-8", "surrogateescape"))
    return made.hexdigest()


def installs_code(lock: str) -> bool:
    """Return whether what a lock file stands for depends on other files of the project; so it is if it is damaged."""
    try:
        packages = tomllib.loads(lock).get("package", ())
        sources = [one.get("source", {}) for one in packages]
        # Of wheels in a folder a lock file has no digests.
        folders = any("://" not in source.get("registry", "://") for source in sources)
        return folders or any(source.keys() & set(LOCAL) for source in sources)
    except (*UNREADABLE, AttributeError, TypeError):
        return True


def _make(
    environment: Path, folder: Path, env: Mapping[str, str], limit: float, is_given_up: Callable[[], bool]
) -> None:
    if is_given_up():  # it waited for another job that made the same
        raise EnvironmentImpossible(tool.GIVEN_UP)
    passed = {name: value for name, value in env.items() if name not in NOT_PASSED}
    passed |= {"UV_PROJECT_ENVIRONMENT": str(environment), "NO_COLOR": "1"}
    words = [_uv(env), "sync", "--frozen", "--no-progress"]
    try:
        done = tool.run(words, limit, limit=MOST_OUTPUT, merge=True, env=passed, cwd=folder, is_given_up=is_given_up)
    except OSError as error:
        raise EnvironmentImpossible(f"uv cannot be started: {error.strerror or error}") from error
    log = environment.with_suffix(".log")
    private.write(log, done.output)
    if done.code == 0:
        return
    shutil.rmtree(environment, ignore_errors=True)
    if done.incomplete == tool.TIMED_OUT:
        raise EnvironmentImpossible(f"uv sync --frozen did not end within {limit:g} s; its output is in {log}")
    raise EnvironmentImpossible(f"uv sync --frozen: {done.incomplete or reason(done.text)}")


def _uv(env: Mapping[str, str]) -> str:
    if found := shutil.which("uv", path=env.get("PATH")):
        return found
    try:
        import uv

        return os.fsdecode(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        raise EnvironmentImpossible(
            "the project has uv.lock, and uv is not installed here: pip install 'stallguard-train[fleet]' brings it"
        ) from None


def reason(output: str) -> str:
    """Return what matters of the output of a uv that failed, in one line without passwords: an error and its causes."""
    lines = [line.rstrip() for line in _STYLE.sub("", output).splitlines() if line.strip()]
    begins = [place for place, line in enumerate(lines) if _BEGINS.match(line)]
    told = lines[begins[-1] :][:LINES] if begins else lines[-LINES:]
    text = " ".join(re.sub(r"^[\s│╰─▶├\u00d7]+", "", line) for line in told)
    return _PASSWORD.sub("", text)[:LENGTH] or "it failed without a word"


class Prepared(NamedTuple):
    """Code and environment of a job on this machine.  `folder`: of the command; `project`: the unpacked one."""

    folder: Path
    project: Path
    interpreter: str


def prepare(store: Store, env: Mapping[str, str], submission: Submission, is_given_up: Callable[[], bool]) -> Prepared:
    """Return where a job can begin.  `is_given_up`: the making of an environment ends then.

    Raises EnvironmentImpossible, StoreError, Damaged, OSError.
    """
    code = submission.code
    project = unpacking.present(code.digest, submission.job)
    if project is None:
        with tempfile.TemporaryDirectory(prefix="stallguard-code-") as place:
            archive = Path(place) / "archive"
            if not store.get(orders.code_key(code.digest), archive):
                raise Damaged(f"its code ({code.digest[:12]}) is not in the store")
            project = unpacking.unpack(archive, code.digest, submission.job)
    folder = unpacking.working_folder(project, code.folder)
    options = submission.options
    wanted = options[options.index(INTERPRETER) + 1] if INTERPRETER in options else ""
    env = {**env, **submission.environment}
    chosen = interpreter(project, code.folder, wanted, env, is_given_up=is_given_up)
    return Prepared(folder, project, "" if wanted else chosen)

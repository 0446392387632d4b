"""Builds a job from the user's command: absolute paths, and the environment that a service manager does not have.

Reads the file system through stallguard.launch.command; must not write.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stallguard.agent import preflight
from stallguard.agent.job import AgentJob, Schedule, checked_name, exit_timeout
from stallguard.agent.service_manager import Places
from stallguard.config import Config
from stallguard.errors import CANNOT_RUN, USAGE, StallguardError
from stallguard.host import tool
from stallguard.launch.command import Disk, choose_interpreter, resolve

# Variables that change what a training does and that a service manager does not set.  None that usually holds a
# secret: other users can read a job's definition.  --env adds to this.
KEPT = frozenset({
    "PATH", "LANG", "LC_ALL", "LC_CTYPE", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH",
    "PYTHONHASHSEED", "LD_LIBRARY_PATH", "STALLGUARD_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
    "XDG_CACHE_HOME", "PYENV_ROOT", "PYENV_VERSION", "TURN_OFF_REMAPPER", "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME",
    "TOKENIZERS_PARALLELISM",
})  # fmt: skip
KEPT_PREFIXES = (
    "TF_", "KERAS_", "XLA_", "CUDA_", "OMP_", "MTL_", "AGX_", "MPS_", "METAL_", "PYTORCH_", "JAX_", "MLX_", "MKL_",
    "OPENBLAS_", "VECLIB_", "NCCL_", "DYLD_",
)  # fmt: skip
# The directory in which pyenv, asdf and mise keep programs that choose a version when they start.
SHIMS = "shims"
ASKED = 20.0  # seconds for a shim to name its interpreter
DEFAULTS = {"LANG": "en_US.UTF-8", "PYTHONUNBUFFERED": "1"}


class JobRequest(NamedTuple):
    """What the user typed.  `options`: of `run`; `words`: COMMAND."""

    name: str
    schedule: Schedule
    options: tuple[str, ...]
    words: tuple[str, ...]
    env: tuple[str, ...] = ()  # NAME=VALUE, or NAME to copy from this environment


class BuiltJob(NamedTuple):
    """A job, the interpreters it needs, and COMMAND with absolute paths."""

    job: AgentJob
    interpreters: tuple[str, ...]
    words: tuple[str, ...]


def make(asked: JobRequest, config: Config, env: Mapping[str, str], cwd: Path, places: Places) -> BuiltJob:
    """Return the job.  Raises StallguardError if COMMAND cannot be run or the name is not valid."""
    name = checked_name(asked.name)
    place = Disk(env, str(cwd))
    python = config.run.python or None
    command = resolve(asked.words, lambda: choose_interpreter(python, env, place.which, cwd=cwd), place)
    chosen = (_python(_absolute(command.interpreter.path, cwd), env, cwd),) if command.interpreter else ()
    if asked.words[0] == "-m":
        words = asked.words  # a module is found from the working directory
    else:
        words = (_absolute(asked.words[0] if chosen else command.argv[0], cwd), *asked.words[1:])
    if not chosen and Path(words[0]).name.startswith("python"):
        words = (_python(words[0], env, cwd), *words[1:])
    at = asked.options.index("--python") if "--python" in asked.options else len(asked.options)
    options = (*asked.options[:at], *asked.options[at + 2 :], *(("--python", chosen[0]) if chosen else ()))
    job = AgentJob(
        name=name,
        python=sys.executable,
        run=(*options, "--", *words),
        cwd=str(cwd),
        log=str(places.log(name)),
        schedule=asked.schedule,
        env=environment(env, asked.env),
        exit_timeout=exit_timeout(config),
        throttle=round(config.agent.throttle),
        max_restarts=config.agent.max_restarts,
    )
    preflight.check_text(job)
    return BuiltJob(job, (sys.executable, *chosen), words)


def _absolute(path: str, cwd: Path) -> str:
    """Return an absolute path without resolving links: the target of a virtual environment's link is outside of it."""
    return os.path.normpath(cwd / path)


def _python(path: str, env: Mapping[str, str], cwd: Path) -> str:
    """Return the interpreter behind `path`: a shim can choose another one when the job starts.

    Raises StallguardError (exit code 126) if a shim starts no Python here.
    """
    if Path(path).parent.name != SHIMS:
        return path
    try:
        result = tool.run([path, "-c", "import sys; print(sys.executable)"], ASKED, env=env, cwd=cwd)
        answer = result.output.decode(errors="replace").strip() if result.code == 0 else ""
        why = result.incomplete or result.errors.decode(errors="replace").strip().partition("\n")[0]
    except OSError as error:
        answer, why = "", str(error)
    if answer.startswith("/"):
        return answer
    raise StallguardError(
        f"{path} is a shim that does not name the interpreter it chooses",
        why=why,
        cure="name the interpreter: --python /full/path/to/python",
        code=CANNOT_RUN,
    )


def environment(env: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Return the environment of a job.  Raises StallguardError (exit code 2) for a name that is not set."""
    found = DEFAULTS | {
        name: value
        for name, value in env.items()
        if name in KEPT or name.startswith(KEPT_PREFIXES) or (name.startswith("STALLGUARD_") and "__" in name)
    }
    path = env.get("PATH", os.defpath).split(os.pathsep)
    found["PATH"] = os.pathsep.join(dict.fromkeys(part for part in path if part.startswith("/")))
    for text in more:
        name, equals, value = text.partition("=")
        if not equals and name not in env:
            raise StallguardError(f"{name} is not set", cure=f"--env {name}=VALUE gives it a value", code=USAGE)
        found[name] = value if equals else env[name]
    return found

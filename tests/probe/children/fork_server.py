"""Imports a framework once and runs each script that it is given in a fork of itself; tests/probe/imported.py uses it.

    fork_server.py MODULE...

Reads one JSON object a line: {"argv", "environment", "folder", "out", "err"}.  Writes the process id of the fork and,
when that has ended, its exit code as subprocess counts it.  The fork becomes what `python SCRIPT ARGUMENTS` would be:
its streams, environment, directory, path, random numbers, `sitecustomize` (the probe) and `__main__`.  Only the
libraries are imported already, so the probe installs its hooks in modules that are there.
"""

import gc
import json
import os
import random  # noqa: F401  seeded in the fork
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType


def has_computed():
    """Whether TensorFlow or JAX has started the threads that it computes with."""
    context = sys.modules.get("tensorflow.python.eager.context")
    jax = sys.modules.get("jax._src.xla_bridge")
    return bool(context and context.context()._context_handle) or bool(jax and jax._backends)


def serve(answers):
    """Answer requests until there are no more; in a fork, return the request that it is to run."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            return json.loads(line)
        os.write(answers, b"%d\n" % pid)
        os.write(answers, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return None


def become(job):
    """Make this fork what a new interpreter would be when it begins with its script."""
    streams = (os.devnull, os.O_RDONLY), (job["out"], os.O_WRONLY), (job["err"], os.O_WRONLY)
    for number, (path, mode) in enumerate(streams):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    sys.argv, sys.orig_argv = job["argv"], [sys.executable, *job["argv"]]
    sys.path[0] = str(Path(job["argv"][0]).resolve().parent)
    sys.path[1:1] = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    for name in {"random", "numpy.random"} & set(sys.modules):
        sys.modules[name].seed()
    # Debian's Python has one of its own, which the server has imported at its start.
    sys.modules.pop("sitecustomize", None)
    with suppress(ImportError):  # of the environment's own, as in the module `site`
        import sitecustomize  # noqa: F401


if __name__ == "__main__":
    gc.disable()  # what an import makes stays: looking for garbage in it takes a fifth of the import
    for library in sys.argv[1:]:
        import_module(library)
    gc.enable()
    channel = os.dup(1)
    os.dup2(2, 1)
    assert not has_computed(), "an operation has run: its threads do not survive a fork"
    gc.collect()
    gc.freeze()  # else the first collection of each fork copies every page
    request = serve(channel)
    if request is not None:
        become(request)
        script = request["argv"][0]
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__, main.__builtins__ = script, __builtins__
        exec(compile(Path(script).read_bytes(), script, "exec"), vars(main))  # noqa: S102

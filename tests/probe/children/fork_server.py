"""Imports a framework once and runs each script that it is given in a fork of itself; tests/probe/imported.py uses it.

    fork_server.py MODULE...

Reads one JSON object a line: {"argv", "environment", "folder", "out", "err"}.  Writes the process id of the fork and,
when that has ended, its exit code as subprocess counts it.  The fork becomes what `python SCRIPT ARGUMENTS` would be:
its streams, environment, directory, path, random numbers, `sitecustomize` (the probe) and `__main__`.  Only the
libraries are imported already, so the probe installs its hooks in modules that are there.

With "guard": true `argv` is a whole command instead, a `stallguard run`.  It gets a fork of this process that lends it
its trainings (`lend`), by a socket whose number is in SG_FORKS.
"""

import atexit
import ctypes
import gc
import io
import json
import os
import random  # noqa: F401  seeded in the fork
import signal
import socket
import sys
import threading
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


def redirect(job):
    """Give this fork its streams."""
    streams = (os.devnull, os.O_RDONLY), (job["out"], os.O_WRONLY), (job["err"], os.O_WRONLY)
    for number, (path, mode) in enumerate(streams):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)


def guard(job):
    """Become the supervisor of `job`; in a fork that is to be one of its trainings, return what that runs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # An orphan below the supervisor becomes its child, as if it had started it: PR_SET_CHILD_SUBREAPER, which lasts.
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
    if os.fork() == 0:
        ours.close()
        return lend(theirs)
    theirs.close()
    ours.set_inheritable(True)
    os.chdir(job["folder"])
    os.execve(job["argv"][0], job["argv"], {**job["environment"], "SG_FORKS": str(ours.fileno())})  # noqa: S606
    raise AssertionError  # never reached


def lend(channel):
    """Start a training for each order of the supervisor, until it ends; in a training, return its job."""
    while True:
        order, streams, *_ = socket.recv_fds(channel, 1 << 20, 2)
        if not order:
            os._exit(0)
        answer, pid = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            if training := os.fork():
                os.write(pid, b"%d" % training)
                os._exit(0)
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
            for one in (channel.detach(), answer, pid, *streams):
                os.close(one)
            while os.getppid() == between:
                pass  # for microseconds
            os.setsid()
            return json.loads(order)
        os.waitpid(between, 0)  # from now on the training is the supervisor's child
        channel.send(os.read(answer, 20))
        for one in (answer, pid, *streams):
            os.close(one)


def become(job):
    """Make this fork what a new interpreter would be when it begins with its script."""
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


def end(script):
    """Run a script and do what the interpreter does after it, except to take itself apart.

    There TensorFlow waits without end for a thread that needs the interpreter, if a generator of the script's is asked
    for a row ahead.  Of 131 forks, six at once on two cores, 4 did; of 95 whole interpreters 2.
    """
    code, interrupted = 0, False
    try:
        script()
    except SystemExit as asked:
        code = asked.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(sys.last_type, sys.last_value, sys.last_traceback)
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()
    atexit._run_exitfuncs()
    for one in gc.get_objects():
        with suppress(OSError, ValueError):  # of a detached one
            if issubclass(type(one), io.IOBase) and not one.closed and one.writable():
                one.flush()
    sys.stdout.flush()
    sys.stderr.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((code or 0) & 0xFF)


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
        redirect(request)
        request = guard(request) if request.get("guard") else request
        become(request)
        script = request["argv"][0]
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__file__, main.__builtins__ = script, __builtins__
        end(lambda: exec(compile(Path(script).read_bytes(), script, "exec"), vars(main)))  # noqa: S102

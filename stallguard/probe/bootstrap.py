"""Installs the probe in a process, and decides what it does there.

A run is often more than one Python process: a launcher (subprocess, Hydra, papermill, torchrun, multiprocessing) that
does not train, trainings one after the other or side by side, and the workers of each training.  The kind of a process
is not known at its start, so its state changes with what it does:

    waiting    from the start: a place (process_key.py), the file of its crash (stack_dumps.py) and the import hooks;
               no page, no socket, no thread
    present    it imports a training library, or the script calls stallguard: page, socket, thread.  The supervisor
               watches it, also for an import that hangs.  It can be a launcher that imports torch, so the processes
               that it starts are not workers yet
    training   it trains: STALLGUARD_OWNER holds its number, and the processes that it starts from now on are workers
    worker     started or forked by a process that trains: the probe is off

A process of multiprocessing (or of loky, joblib's) becomes present only when it trains: most of them never do, and the
supervisor watches the parent while they import.  A forked process that has not trained begins again as waiting.

This costs a few milliseconds at the start of every Python process of a run.  So the hooks are loaded only when the
first training library is imported.

`ImportFinder` runs a function right after a module was imported.  Only the loader of a named module is replaced, and
only during its import.  The module gets its own loader back before its code runs, so inspect, pkgutil and
importlib.resources find the original one.
"""

from __future__ import annotations

import atexit
import os
import sys
from _thread import allocate_lock

from . import libraries, outbox, process_key, settings, stack_dumps, wire
from .api import ScriptApi
from .beats import FINISHING, Beats, monotonic_ns
from .context import Context
from .outbox import Outbox
from .patches import Patches
from .sender import Sender
from .stack_sampler import StackSampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from types import ModuleType
    from typing import Any, Callable, Optional

    from .settings import ProbeSettings

    After = Callable[[ModuleType], None]


API = "stallguard"  # what a script imports to speak with the probe


class Loader:
    """Replaces the loader `real` during one import, and calls `after` when the module is loaded."""

    def __init__(self, real: Any, after: After) -> None:
        self._real = real
        self._after = after

    def create_module(self, spec: Any) -> Any:
        """Make the module as its own loader does."""
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own loader back, run its code, then call `after`."""
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._after(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


# Python omits its own import machinery from tracebacks, and identifies it by the file name of the code.  With this name
# the traceback of an import that fails is the same as without the probe.
Loader.exec_module.__code__ = Loader.exec_module.__code__.replace(co_filename="<frozen importlib._bootstrap_external>")


class ImportFinder:
    """First on sys.meta_path: has the other finders find a module, and replaces the loader of a registered one.

    If none of them finds the script's API, it does: `import stallguard` works in an environment in which that is not
    installed.  It is one finder, because accelerate and Trainer look for a package that is not there in each step.
    `folder`: of the API.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names = {API}  # of all modules that it does anything for
        self._waiting: dict[str, list[After]] = {}
        self._first: dict[str, Callable[[str], None]] = {}
        self.surprise: Callable[[str, BaseException], object] = lambda *_: None

    def first(self, names: tuple[str, ...], function: Callable[[str], None]) -> None:
        """Call function(name) once, before the module `name` is imported; now, if it is imported already."""
        self._first = dict.fromkeys(names, function)
        self._names.update(names)
        for name in names:
            if name in sys.modules:
                self._begins(name)

    def add(self, targets: dict[str, Callable[[Any], None]]) -> None:
        """Register functions by module name; those of a module that is imported already run now."""
        for name, function in targets.items():
            self._waiting.setdefault(name, []).append(function)
            self._names.add(name)
            module = sys.modules.get(name)
            if module is not None:
                self._guarded(function, module)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the spec that another finder has for a registered module, None for any other."""
        if name not in self._names:
            return None
        if name in self._first:
            self._begins(name)
        if name not in self._waiting and name != API:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                if name in self._waiting and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader, self._imported)
                return spec
        if name != API:
            return None
        from importlib.util import spec_from_file_location

        file = os.path.join(self._folder, "__init__.py")
        return spec_from_file_location(name, file, submodule_search_locations=[self._folder])

    def _begins(self, name: str) -> None:
        function = self._first.pop(name, None)  # another thread can import it too
        if function is not None:
            try:
                function(name)
            except Exception as error:
                self.surprise("before " + name, error)

    def _imported(self, module: ModuleType) -> None:
        for function in self._waiting.get(module.__name__, ()):
            self._guarded(function, module)

    def _guarded(self, function: After, module: ModuleType) -> None:
        try:
            function(module)
        except Exception as error:
            self.surprise("hooking " + module.__name__, error)


OWNER = "STALLGUARD_OWNER"  # the number of the process that trains
# Set from the start, and as long as a number can be: when a process begins to train, other threads can be reading the
# environment, and the C library can then replace the value without moving the table of all variables.
UNTRAINED = "untrained"
WAITING, PRESENT, TRAINING, WORKER = "waiting", "present", "training", "worker"
# Parts of the command lines with which multiprocessing and loky start Python.
POOLS = ("from multiprocessing.", "--multiprocessing-fork", "loky.backend.")
# Parts that wrap functions of libraries, in this order: (whether it is wanted; its module, whose begin(context) returns
# what its patches get; whether it begins with the process).
PARTS: dict[str, tuple[Callable[[ProbeSettings], object], str, bool]] = {
    "always": (lambda wish: wish.token, "", False),
    "seeds": (lambda wish: wish.seed, "seeds", True),
    "files": (lambda wish: wish.checkpoints, "checkpoint.file_events", True),
    "trackers": (lambda wish: wish.trackers, "trackers", False),
    "sizes": (lambda wish: wish.token, "microbatch.fit_sizes", False),
    "device": (lambda wish: wish.device == "cpu", "", False),
    "slices": (lambda wish: wish.slices > 1 and not wish.rows, "microbatch.compare", False),
    "again": (lambda wish: wish.inside > 1 == wish.slices and not wish.rows, "", False),
    "rows": (lambda wish: wish.fewer_rows, "microbatch.fewer_rows", False),
    "checkpoint": (lambda wish: wish.checkpoints, "checkpoint.fit_session", False),
}
HIDDEN_GPU = {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}  # for TensorFlow and torch; for JAX
COMMAND = 160  # characters of a command line in the hello


def enter(environment: MutableMapping[str, str], package: ModuleType) -> None:
    """Install the probe, unless this is a worker process; it can raise, and the caller drops the error."""
    if sys.byteorder != "little":
        return  # the record is little-endian, as are all machines that are supported
    finder = ImportFinder(os.path.dirname(package.__path__[0]))
    sys.meta_path.insert(0, finder)
    wish, pid = settings.of(environment), os.getpid()
    if not (wish.token and wish.pages):
        return
    # Its own number: this process trained, and has replaced its program (os.execv).
    if environment.get(OWNER) not in (None, "", UNTRAINED, str(pid)):
        return
    environment[OWNER] = UNTRAINED
    probe = Probe(environment, wish.token, pid, finder)
    package.__dict__.update(voice=ScriptApi(probe.context, probe.appear), probe=probe)
    probe.start()


class Probe:
    """Builds the parts of the probe and connects them."""

    def __init__(self, environment: MutableMapping[str, str], token: int, pid: int, finder: ImportFinder) -> None:
        self.environment = environment
        self.state = WAITING
        self.sender: Optional[Sender] = None
        self._token, self._pid = token, pid
        self._turn = allocate_lock()
        # Started by multiprocessing or loky: spawned, or as the server that forks others.
        words = getattr(sys, "orig_argv", None) or getattr(sys, "argv", [])
        self._quiet = any(start in word for word in words for start in POOLS)
        self._forked = False
        self._forks = 0
        self._signal = 0  # for stack dumps, once it is armed
        self._is_equipped = False
        self._parts: dict[str, Any] = {}  # what begin() of each part has returned
        self.beats = Beats(outbox.begin(outbox.private(), token, pid, monotonic_ns()))
        self.beats.claim = self.claim
        self.mail = Outbox(token, pid)
        self.patches = Patches(self.step_aside)
        self.context = Context(self.beats, self.mail, self.patches, environment)
        self._settings = self.context.settings
        self._folder = self._settings.pages
        self.context.find_place = self._find_place
        self.finder = finder
        finder.surprise = self.patches.surprise
        self.context.flush = self._flush

    def _find_place(self) -> str:
        try:
            return process_key.of(self.environment)
        except Exception as error:
            self.context.surprise("finding this process' place", error)
            return ""

    def start(self) -> None:
        """Wait for a training library."""
        if self._settings.device == "cpu":
            self.environment.update(HIDDEN_GPU)
        self.mail.place = self.context.place
        self._mark(wire.WAITING)
        stack_dumps.watch()
        stack_dumps.begin(self._crashes())
        for part, (is_wanted, _, begins_now) in PARTS.items():
            if begins_now and is_wanted(self._settings):
                self._guarded(part, self._begin, part)
        self.mail.version("python", "%d.%d.%d" % sys.version_info[:3])
        self.mail.version("machine", os.uname().machine)  # an Intel one on Apple silicon: Rosetta translates
        self.finder.first(libraries.NAMES, self.meet)
        os.register_at_fork(before=self._count_fork, after_in_child=self.forked)
        atexit.register(self.goodbye)

    def _crashes(self) -> str:
        return os.path.join(self._folder, "%d%s" % (self._pid, stack_dumps.SUFFIX))

    def _mark(self, name: str) -> None:
        """Show the supervisor a process that sends no record yet."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            os.close(os.open(os.path.join(self._folder, name % self._pid), flags, 0o600))
        except OSError:
            pass

    def _unmark(self) -> None:
        try:
            os.unlink(os.path.join(self._folder, wire.WAITING % self._pid))
        except OSError:
            pass

    def meet(self, name: str) -> None:
        """Have a library wrapped that is about to be imported; with a training library this process is watched."""
        library = libraries.read(name)
        if library.trains and not self._is_equipped:
            self._is_equipped = True
            self._unmark()
            if self._quiet:
                self._mark(wire.LOADING)
            else:
                self.appear()
        for hooks in library.hooks:
            self._guarded("hooks of " + name, lambda: self.finder.add(hooks(self.context)))  # noqa: B023
        for part, (is_wanted, _, _) in PARTS.items():
            if part in library.patches and is_wanted(self._settings):
                patches = library.patches[part].items()
                self.finder.add({module: self._patch(part, patch) for module, patch in patches})

    def _patch(self, part: str, patch: Any) -> Callable[[Any], None]:
        """Return what patches a module for a part of the probe."""

        def patch_module(module: Any) -> None:
            found, more = patch, ()
            if isinstance(patch, tuple):
                found, more = getattr(_own(patch[0]), patch[1]), patch[2:]
            made = self._begin(part)
            if made is not None:
                found(made, *more, module)

        return patch_module

    def _begin(self, part: str) -> Any:
        """Return what the patches of a part get, made once; None: the part changes nothing in this process."""
        if part not in self._parts:
            name = PARTS[part][1]
            self._parts[part] = _own(name).begin(self.context) if name else self.context
        return self._parts[part]

    def _guarded(self, name: str, action: Callable[..., object], *args: Any) -> None:
        try:
            action(*args)
        except Exception as error:
            self.context.surprise(name, error)

    def appear(self) -> None:
        """Open the page and the socket and start the thread: from here on the supervisor watches this process."""
        if self.state != WAITING or not self._turn.acquire(False):
            return  # another thread does it
        self.state = PRESENT
        try:
            path = os.path.join(self._folder, "%d" % self._pid)
            self.mail.place, self.mail.command = self.context.place, _command()
            util = sys.modules.get("multiprocessing.util")
            if self._forked and util is not None:  # most versions end a forked process without atexit
                util.Finalize(None, self.goodbye, exitpriority=-100)
            self.beats.slots = outbox.moved(self.beats.slots, path + ".page")
            if self._forked:
                stack_dumps.begin(self._crashes())
            stack_dumps.look()
            number = self._settings.signal or stack_dumps.DEFAULT
            # Again in a forked process, whose inherited handler writes to its parent's file.
            again = number == self._signal
            self._signal = number if stack_dumps.arm(number, path + ".stacks", again=again) else 0
            if self._signal:
                self.beats.flag(wire.FLAG_STACKS_ARMED, True)
                self.mail.arm(True)
            self.sender = Sender(self.beats, self.mail, self._settings.socket, self._signal)
            profile = os.path.join(self._folder, wire.PROFILE % self._pid)
            if self.context.resuming and self.context.script_checkpoints is not None:
                self.sender.unread = self.context.script_checkpoints.unread
            self.sender.sampler = StackSampler(self.beats, profile, self.context.python_functions, self.sender.waits)
            self.sender.start()
        except Exception as error:
            self.context.surprise("appearing", error)

    def claim(self) -> None:
        """Mark this process as training; called once, at the first sign of it."""
        self.appear()
        if self.state == PRESENT:
            self.state = TRAINING
            self.environment[OWNER] = str(self._pid)
            self.beats.flag(wire.FLAG_TRAINS, True)
            self._await_end()

    def _await_end(self) -> None:
        """Let Python call `_ending` when the program ends: before exit handlers, one of which can hold its lock."""
        # As concurrent.futures.thread does, from Python 3.9 on; the probe's thread sees the end of others later.
        register = getattr(sys.modules.get("threading"), "_register_atexit", None)
        if register is not None:
            try:
                register(self._ending)
            except RuntimeError:
                pass  # it ends already

    def _ending(self) -> None:
        if self.state == TRAINING:
            self.beats.enter(FINISHING)
            self._flush()

    def step_aside(self, why: str) -> None:
        """Remove the hooks and report why; the training goes on without the probe."""
        self.patches.take_out()
        self.beats.flag(wire.FLAG_STEPPED_ASIDE, True)
        self.mail.note("aside", "the probe removed its hooks: " + why, {})

    def _count_fork(self) -> None:
        self._forks += 1
        stack_dumps.forking()

    def forked(self) -> None:
        """Handle a fork in the child: disable the probe in a worker of a training, else begin again."""
        stack_dumps.forked()
        if self.sender is not None:
            self.sender.abandon()
            self.sender = None
        if self.state in (TRAINING, WORKER):
            self.state = WORKER
            self.beats.slots = outbox.private()
            return
        self.state, self._pid, self._quiet, self._forked = WAITING, os.getpid(), True, True
        self._turn = allocate_lock()
        self.beats.begin(outbox.begin(outbox.private(), self._token, self._pid, monotonic_ns()))
        self.mail.forked(self._pid)
        # A place of its own: the number of the fork is the same in the next attempt.
        self.environment[process_key.VARIABLE] = "%s.%d" % (self.context.place, self._forks)
        self.context.forget_place()
        self._forks = 0

    def _flush(self) -> None:
        if self.sender is not None:
            self.sender.flush()

    def goodbye(self) -> None:
        """Send the last record: the program ends."""
        if self.state == WAITING:
            self._unmark()
        if self.sender is not None:
            self.sender.goodbye()

    def withdraw(self) -> None:
        """Leave a process that goes on without the probe: the kernel of a notebook.  From its main thread."""
        self.patches.take_out()
        self.goodbye()
        sys.meta_path[:] = [one for one in sys.meta_path if one is not self.finder]
        atexit.unregister(self.goodbye)
        self.state = WORKER  # for what is forked from now on
        for name in (OWNER, settings.VARIABLE):
            self.environment.pop(name, None)
        if self._signal:
            stack_dumps.disarm(self._signal)


def _own(name: str) -> Any:
    """Return a module of the probe, loaded when it is needed."""
    return __import__("%s.%s" % (__package__, name), fromlist=["begin"])


def _command() -> str:
    """Return what this process runs, in the user's terms: the script's name and its arguments."""
    argv = [str(word) for word in getattr(sys, "argv", [])]
    words = " ".join([os.path.basename(word) for word in argv[:1]] + argv[1:])
    multiprocessing = sys.modules.get("multiprocessing.process")
    name = multiprocessing.current_process().name if multiprocessing is not None else "MainProcess"
    return words[:COMMAND] + ("" if name == "MainProcess" else " (%s)" % name[:COMMAND])

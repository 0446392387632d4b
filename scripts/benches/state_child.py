"""What `scripts/bench state` starts with the interpreter of a backend: imports Keras once, and forks each attempt.

It reads one case a line as JSON from its input, and writes one result a line.  No operation of a framework runs in this
process, so its children begin as a script does that has just imported Keras.  A child activates the probe for itself,
runs the script as `__main__`, and is killed by SIGKILL.
"""

import contextlib
import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
import types

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROBE = os.environ.pop("STATE_PROBE", "") or os.path.join(ROOT, "stallguard", "probe")
PACKAGE = "_stallguard_probe"
PARTS = (
    "bootstrap", "frameworks.keras", "seeds", "checkpoint.fit_session", "checkpoint.keras_hooks",
    "checkpoint.keras_hooks", "checkpoint.fast_forward", "checkpoint.saver", "microbatch.fit_sizes",
)  # fmt: skip
LONGEST = 90.0  # s that one attempt takes at most
OPERATIONS = 16  # on files, in one save: about
LATE = 2.5  # of the time of the undisturbed run: about what one with saves takes; kills at a share of this


class Ended(Exception):
    """An attempt did not end in time."""


class Moments:
    """An audit hook that notes what the script reports, and kills it; no checkpoint can hold its counts.

    `kill`: ("batch" or "save", number) of the last moment or file operation.
    """

    def __init__(self, notes, kill=None, saves=""):
        """`notes`: descriptor of a file; `saves`: the folder of the checkpoints."""
        self._notes = notes
        self._kind, self._last = kill or ("", 0)
        self._saves = saves
        self._counts = {"batch": 0, "save": 0}

    def install(self):
        sys.addaudithook(self._hear)

    def _hear(self, event, arguments):
        if event == "state.moment":
            self._count("batch")
        elif event in ("open", "os.rename", "os.remove") and self._saves:
            if str(arguments[0]).startswith(self._saves):
                self._count("save")
        elif event in ("state.past", "state.result", "state.began"):
            self._write([event[6:], *arguments])

    def _write(self, line):
        os.write(self._notes, (json.dumps(line, default=repr) + "\n").encode())

    def _count(self, kind):
        self._counts[kind] += 1
        if kind == self._kind and self._counts[kind] == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def finished(self):
        """Note how many moments there were."""
        self._write(["counts", self._counts])


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    given = json.loads(sys.stdin.readline())
    libraries = [name for name in given["libraries"] if imported(name)]
    preload(given["first"])
    sys.path[0] = ""
    gc.collect()
    gc.freeze()
    out.write(json.dumps({"libraries": libraries}) + "\n")
    out.flush()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a directory with a name of its own
    base = tempfile.mkdtemp(prefix="sg-state-", dir=memory)
    try:
        for line in sys.stdin:
            case = json.loads(line)
            folder = os.path.join(base, "case")
            try:
                result = Cases(folder, case).run()
            finally:
                if given["keep"]:
                    os.unlink(os.path.join(folder, "s"))  # a socket cannot be moved to another disk
                    shutil.move(folder, os.path.join(given["keep"], f"{os.getpid()}-{time.monotonic_ns()}"))
                else:
                    shutil.rmtree(folder, ignore_errors=True)
            out.write(json.dumps(result) + "\n")
            out.flush()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def imported(name):
    """Return whether a module can be imported; import it."""
    try:
        importlib.import_module(name)
    except Exception:  # noqa: BLE001 - a library that does not fit this interpreter can raise anything
        return False
    return True


def preload(first):
    """Load the library that trains, and the parts of the probe, so that each child need not."""
    sys.path.append(ROOT)  # the environments of libraries have no stallguard
    for name in first:
        importlib.import_module(name)
    sys.path.remove(ROOT)
    package = types.ModuleType(PACKAGE)
    package.__path__ = [PROBE]
    sys.modules[PACKAGE] = package
    for name in PARTS:
        imported(PACKAGE + "." + name)


class Cases:
    """One case: the undisturbed run, the killed ones, the last one."""

    def __init__(self, folder, case):
        self.folder, self.case = folder, case
        self.attempts = 0
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(os.path.join(folder, "run"))
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(os.path.join(folder, "s"))
        self.socket.settimeout(0.004)

    def run(self):
        reference = self.plain("plain")
        found = {"spec": self.case["spec"], "reference": reference, "attempts": []}
        if reference["code"] != 0:
            return found
        work = self.place("work")
        counts = reference["counts"]["batch"]
        for kind, share in [*self.case["kills"], ("", 0.0)]:
            number = {
                "batch": max(1, round(share * counts)),
                "save": max(1, round(share * OPERATIONS * self.case["batches"])),
                "time": share * reference["seconds"] * LATE,
            }.get(kind, 0)
            made = self.attempt(work, True, (kind, number))
            found["attempts"].append(made)
            if made["code"] != -signal.SIGKILL:
                break
        if found["attempts"][-1]["code"] != 0:
            found["restarted"] = self.attempt(work, False, ("", 0))
        elif found["attempts"][-1]["results"] != reference["results"]:
            found["again"] = self.plain("plain2")
        return found

    def plain(self, name):
        return self.attempt(self.place(name), False, ("", 0))

    def place(self, name):
        # The same length of path for each: it is in no result, but a script can print it.
        work = os.path.join(self.folder, name)
        os.makedirs(work)
        with open(os.path.join(work, "train.py"), "w") as file:
            file.write(self.case["source"])
        return work

    def attempt(self, work, guarded, kill):
        self.attempts += 1
        notes = os.path.join(self.folder, "notes")
        with contextlib.suppress(OSError):
            os.unlink(notes)
        began = time.monotonic()
        pid = os.fork()
        if not pid:
            code = 70
            try:
                code = self.child(work, guarded, kill, notes)
            finally:
                os._exit(code)
        said = []
        killing = began + kill[1] if kill[0] == "time" else began + LONGEST
        try:
            code = self.wait(pid, said, killing)
            if code == -signal.SIGKILL and kill[0] != "time" and time.monotonic() - began > LONGEST:
                code = None
        finally:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        found = {"code": code, "seconds": time.monotonic() - began, "said": said}
        found.update(results={}, past=[], counts={}, began=False)
        self.read(notes, found)
        if code not in (0, -signal.SIGKILL):
            with open(os.path.join(work, "..", "err"), errors="replace") as file:
                found["err"] = file.read()[-3000:]
        return found

    def wait(self, pid, said, killing):
        """Return the exit code of a child; receive what its probe says meanwhile."""
        killed = False
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if not killed and time.monotonic() > killing:
                killed = True
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            while self.receive(said, not done):
                pass
            if done:
                return os.waitstatus_to_exitcode(status)

    def receive(self, said, wait):
        """Take one datagram; return whether there was one."""
        try:
            data = self.socket.recv(4096, 0 if wait else socket.MSG_DONTWAIT)
        except OSError:
            return False
        if data[:1] == b"{":
            note = json.loads(data)
            if note["kind"] != "hello" and note["text"]:
                said.append([note["kind"], note["text"]])
            elif note["kind"] == "hello":
                said += [["beyond", text] for text in note["beyond"] if ["beyond", text] not in said]
        return True

    def read(self, notes, found):
        if not os.path.exists(notes):
            return
        with open(notes) as file:
            for line in file:
                with contextlib.suppress(ValueError):  # the last line of a killed attempt can be cut
                    kind, *rest = json.loads(line)
                    if kind == "result":
                        found["results"][rest[0]] = rest[1]
                    elif kind == "past":
                        found["past"].append(rest)
                    elif kind == "began":
                        found["began"] = True
                    elif kind == "counts":
                        found["counts"] = rest[0]

    # ---- in the child -----------------------------------------------------------------------------------------

    def child(self, work, guarded, kill, notes):
        """Become the training; return the exit code."""
        os.setsid()
        self.socket.close()
        error = os.open(os.path.join(self.folder, "err"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(error, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(work)
        # Addresses of objects must not be those of the attempt before.
        self.ballast = [bytearray(random.randrange(64, 4096)) for _ in range(random.SystemRandom().randrange(400))]
        saves = os.path.join(self.folder, "saves")
        moments = Moments(
            os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND), kill if kill[0] != "time" else None, saves
        )
        faulthandler.dump_traceback_later(LONGEST - 5, file=sys.__stderr__)
        path = os.path.join(work, "train.py")
        sys.argv, sys.orig_argv = ["train.py"], [sys.executable, "train.py"]
        sys.path[0] = work
        module = types.ModuleType("__main__")
        module.__file__, module.__builtins__ = path, __builtins__
        sys.modules["__main__"] = module
        if guarded:
            self.activate(saves)
        else:
            for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
                del sys.modules[name]
        moments.install()
        code = 0
        try:
            exec(compile(self.case["source"], path, "exec"), module.__dict__)  # noqa: S102 - it is the training
        except BaseException:  # noqa: BLE001 - as Python does at the top of a script
            traceback.print_exc()
            code = 1
        moments.finished()
        if guarded:
            sys.modules[PACKAGE].probe.goodbye()
        return code

    def activate(self, saves):
        """Begin the probe as Python's start does in a run."""
        key = os.path.join(self.folder, "signing.key")
        with open(os.open(key, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(bytes(32))
        package, settings = sys.modules[PACKAGE], importlib.import_module(PACKAGE + ".settings")
        os.environ[settings.VARIABLE] = settings.encode(settings.ProbeSettings(
            key=key, socket=os.path.join(self.folder, "s"), pages=os.path.join(self.folder, "run"),
            checkpoint_every=0.0, checkpoint_cost=1.0, token=self.attempts, seed="4711", checkpoints=saves,
            resume=self.attempts > 2,
        ))  # fmt: skip
        importlib.import_module(PACKAGE + ".bootstrap").enter(os.environ, package)


if __name__ == "__main__":
    main()

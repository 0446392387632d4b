"""`%load_ext stallguard`: watch a kernel that Jupyter or VS Code has started, from inside and from beside it.

Inside are the hooks of the probe, as in a guarded script, and a thread that shows what is known in the cell that runs.
Beside it is a process (supervisor/beside_kernel.py) that counts, judges, keeps evidence and notifies.  Neither ends,
restarts or signals the kernel.  If `%stallguard interrupt on` orders it, the thread here interrupts a stalled cell as
the button of the front end does, by SIGINT, once the evidence of the stall is kept.

Cells begin and end: between two of them nothing is awaited.  A kernel that starts anew, or a second notebook, loads the
extension for itself and is a run of its own.

In the user's interpreter: standard library only.  `stallguard` imports it when the extension is loaded.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from importlib import import_module
from types import ModuleType
from typing import Any

START = 30.0  # seconds for the process beside the kernel to begin
END = 10.0  # seconds for it to write the end of the run
EVERY = 1.0  # seconds between two status lines
SHOWN_AFTER = 3.0  # seconds of a cell that trains until it has a status line
SILENT = 2.5  # seconds without progress that no stall is shorter than (core/limits.py, near)
LAST = 8  # sentences that are shown in a cell
FAR = 1 << 60  # nanoseconds: longer than any kernel lives
PROBE = "_stallguard_probe"
LEAVE = b"leave\n"
USAGE = "%stallguard status, %stallguard interrupt on, %stallguard interrupt off"
_loaded: list[Notebook] = []


def load(shell: Any) -> None:
    """Watch the kernel of `shell` from now on; what cannot be done is said in the cell."""
    try:
        notebook = Notebook(shell)
    except (OSError, ValueError, RuntimeError) as error:
        say(f"stallguard: this kernel is not watched: {error}")
        return
    _loaded.append(notebook)
    say(f"stallguard: watching this kernel, and never ending it (run {notebook.run})")


def unload(_shell: Any) -> None:
    """End the watch; the kernel goes on as before."""
    while _loaded:
        _loaded.pop().close()


def say(text: str) -> None:
    """Write into the output of the cell."""
    sys.stdout.write(text + "\n")


def environment_for_watch() -> dict[str, str]:
    """Return the user's environment, without what an earlier watch has left in it."""
    return {name: value for name, value in os.environ.items() if name not in ("STALLGUARD_PROBE", "STALLGUARD_OWNER")}


def name_of(shell: Any) -> str:
    """Return the notebook's file, as Jupyter or VS Code says it; "notebook" if neither does."""
    named = shell.user_ns.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME")
    return os.path.basename(named) if isinstance(named, str) and named else "notebook"  # noqa: PTH119 - a name


class Notebook:
    """The watch over this kernel."""

    def __init__(self, shell: Any) -> None:
        """Start the process beside the kernel, then the probe.  Raises OSError, ValueError or RuntimeError."""
        self._shell = shell
        words = [sys.executable, "-P", "-m", "stallguard.supervisor.beside_kernel", str(os.getpid()), name_of(shell)]
        # A session of its own: a signal for the kernel's group is not meant for it.
        self._beside = subprocess.Popen(
            words, env=environment_for_watch(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._beside.wait()  # it has forked, and is no child of the kernel
        self._rest, self._is_gone = b"", False
        try:
            begun = self._first()
            self.run, self._pid = str(begun["run"]), int(begun["pid"])
            os.environ["STALLGUARD_PROBE"] = str(begun["settings"])
            self._probe = enter()
        except BaseException:
            self._leave()
            os.environ.pop("STALLGUARD_PROBE", None)
            raise
        self._interrupts = False
        self._is_running, self._began, self._beats_before = True, time.monotonic(), self._beats()
        self._said: list[str] = []  # in the cell that runs, or ran last
        self._all: list[str] = []  # in any cell, the last ones
        self._shown = ""
        self._handle: Any = None
        self._context = contextvars.copy_context()
        self._is_over = threading.Event()
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)
        shell.register_magic_function(self.magic, "line", "stallguard")
        self._thread = threading.Thread(target=self._follow, name="stallguard", daemon=True)
        self._thread.start()

    def _first(self) -> dict[str, Any]:
        until, said = time.monotonic() + START, list[str]()
        while time.monotonic() < until:
            try:
                lines = self._lines(0.2)
            except EOFError:
                raise RuntimeError("; ".join(said[-3:]) or "its supervisor ended at once") from None
            for line in lines:
                if line.startswith("{"):
                    found: dict[str, Any] = json.loads(line)
                    return found
                said.append(line)
        raise RuntimeError(f"its supervisor did not begin within {START:g} s")

    def _lines(self, seconds: float) -> list[str]:
        """Return the lines that come from beside the kernel within `seconds`."""
        pipe = self._beside.stdout
        if pipe is None or not select.select([pipe], [], [], seconds)[0]:
            return []
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            raise EOFError
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in whole if line]

    # ---- cells --------------------------------------------------------------------------------------------------

    def _begin(self, *_info: Any) -> None:
        self._said, self._handle, self._shown = [], None, ""
        self._began, self._beats_before = time.monotonic(), self._beats()
        self._context = contextvars.copy_context()
        self._expect(0)
        self._is_running = True

    def _end(self, *_result: Any) -> None:
        self._is_running = False
        self._expect(time.monotonic_ns() + FAR)

    def _expect(self, until: int) -> None:
        """Begin a phase of the script's own code; until that time, ns, no silence in it is a stall."""
        beats = self._probe.beats
        beats.slots[self._slot("expect_ns")] = until
        beats.enter(1)  # wire.PHASES: idle

    def _slot(self, name: str) -> int:
        number: int = sys.modules[PROBE + ".wire"].SLOT[name]
        return number

    def _field(self, name: str) -> int:
        number: int = self._probe.beats.slots[self._slot(name)]
        return number

    def _beats(self) -> int:
        self._probe.beats.publish()
        return self._field("beats")

    # ---- what is shown ------------------------------------------------------------------------------------------

    def status(self) -> str:
        """Return how far the training is, in one line."""
        count = self._beats()
        parts = [f"{count} batch{'' if count == 1 else 'es'}"]
        epoch, epochs = self._field("epoch"), self._field("epochs")
        parts += [f"epoch {epoch + 1}" + (f" of {epochs}" if epochs > 0 else "")] if epoch >= 0 else []
        bits = self._field("loss_bits")  # 0: not known
        loss = sys.modules[PROBE + ".wire"].bits_float(bits)
        parts += [f"loss {loss:.4g}"] if bits and math.isfinite(loss) else []
        return "stallguard: " + ", ".join(parts)

    def _follow(self) -> None:
        """Show what comes from beside the kernel, and how far the cell is; on a thread."""
        while not self._is_over.is_set():
            try:
                lines = self._lines(EVERY)
                for line in lines:
                    self._take(line)
            except (EOFError, OSError, ValueError):
                self._is_gone = True
                if not self._is_over.is_set():
                    self._said.append(
                        f"stallguard: the watch has ended; %reload_ext stallguard begins another ({GONE})"
                    )
                    self._show()
                return
            trained = self._beats() > self._beats_before
            if self._is_running and (lines or (trained and time.monotonic() - self._began >= SHOWN_AFTER)):
                self._show()
                time.sleep(EVERY if lines else 0)  # a stall comes in several sentences

    def _take(self, line: str) -> None:
        if not line.startswith("{"):
            self._said.append(line)
            self._all = [*self._all, line][-LAST:]
        elif "evidence" in json.loads(line) and self._interrupts and self._is_silent():
            self._said.append("stallguard: interrupting the cell, as %stallguard interrupt on orders")
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _is_silent(self) -> bool:
        """Return whether the stall goes on in the cell that runs: it can have ended, and another cell have begun."""
        self._probe.beats.publish()
        return self._is_running and time.monotonic_ns() - self._field("progress_ns") > SILENT * 1e9

    def _show(self) -> None:
        """Write the status line into the cell, in place of the one before; not where there is no front end."""
        if getattr(self._shell, "kernel", None) is None:
            return
        text = "\n".join([*self._said[-LAST:], self.status()])
        if text == self._shown:
            return
        self._shown = text
        with contextlib.suppress(Exception):  # a front end that is gone must not end the thread
            self._context.run(self._display, text)

    def _display(self, text: str) -> None:
        display = import_module("IPython.display").display
        if self._handle is None:
            self._handle = display({"text/plain": text}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)

    # ---- orders of the user -------------------------------------------------------------------------------------

    def magic(self, line: str) -> None:
        """Do what a line `%stallguard ...` orders."""
        words = line.split()
        if words in (["interrupt", "on"], ["interrupt", "off"]):
            self._interrupts = words[1] == "on"
            then = "interrupted once its evidence is kept" if self._interrupts else "left alone"
            say(f"stallguard: a stalled cell is {then}")
        elif words in ([], ["status"]):
            say(self.status())
            say(
                f"run {self.run}: "
                + ("watched" if not self._is_gone else f"not watched any more ({GONE}); %reload_ext stallguard")
            )
            for sentence in self._all:
                say(sentence)
        else:
            say(USAGE)

    def close(self) -> None:
        """End the watch and take the probe out of the kernel."""
        self._is_over.set()
        for event, function in (("pre_run_cell", self._begin), ("post_run_cell", self._end)):
            self._shell.events.unregister(event, function)
        self._shell.magics_manager.magics["line"].pop("stallguard", None)
        self._thread.join(2 * EVERY)
        self._probe.context.flush()
        self._leave()
        self._probe.withdraw()
        for name in [one for one in sys.modules if one.partition(".")[0] == PROBE]:
            del sys.modules[name]

    def _leave(self) -> None:
        """Order the process beside the kernel to end, and wait until it has written the end of the run."""
        try:
            os.write(self._beside.stdin.fileno(), LEAVE)  # type: ignore[union-attr]
            until = time.monotonic() + END
            while time.monotonic() < until:
                self._lines(EVERY)
        except (OSError, EOFError):  # it has ended
            pass
        for pipe in (self._beside.stdin, self._beside.stdout):
            if pipe is not None:
                pipe.close()


GONE = "its supervisor has ended"


def enter() -> Any:
    """Install the probe in this process, as in a guarded script; return it.  Raises RuntimeError if it is not in."""
    package = ModuleType(PROBE)
    package.__path__ = [os.path.join(os.path.dirname(__file__), "probe")]  # noqa: PTH118, PTH120 - as the probe's own
    sys.modules[PROBE] = package
    import_module(PROBE + ".bootstrap").enter(os.environ, package)
    probe = getattr(package, "probe", None)
    if probe is None:
        raise RuntimeError("a program above it is guarded already")
    probe.appear()
    return probe

"""The checks of a terminal: what a user types and sees while a script runs under `stallguard run`.

Each opens a pseudo-terminal of its own.  They hold on every system, so they are made on Linux as well.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Iterator, Sequence

from mac.scene import Scene
from mac.table import Row, judged

SHOWS = """
import sys, time
for number in range(200):
    sys.stdout.write("\\r%d/200 \\033[32mstep\\033[0m" % number); sys.stdout.flush()
print("\\nlast line", end="")
"""
WAITS = """
import sys, time
print("ready", flush=True)
try:
    end = time.monotonic() + 60
    while time.monotonic() < end: time.sleep(0.05)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""
STEPS = """
import time
print("ready", flush=True)
for number in range(60): time.sleep(0.05)
print("all steps", flush=True)
"""
ALL_BYTES = """
import os, sys
sys.stdout.buffer.write(bytes(range(256)) * 200); sys.stdout.flush()
os.write(2, b"\\xff\\xfe\\x1b[31merror\\x1b[0m\\n")
"""
COLOURS = """
import os, sys
size = os.get_terminal_size()
print([stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)], size.columns, size.lines,
      os.environ.get("TERM"), os.environ.get("NO_COLOR"))
print("\\033[38;2;255;100;0mcolour\\033[0m \\033[1mbold\\033[0m")
"""
RESIZES = """
import os, signal, sys, time
def changed(*_):
    print("now %dx%d" % os.get_terminal_size(), flush=True)
signal.signal(signal.SIGWINCH, changed)
print("ready", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end and not os.path.exists(sys.argv[1]): time.sleep(0.05)
"""
LAST_LINES = """
import time
print("ready", flush=True)
time.sleep(1.0)
for number in range(500): print("line", number, flush=True)
print("the last line", flush=True)
"""
LONGEST = 60.0  # seconds for a program under a terminal
OWN = 7  # exit code of the script that is interrupted
CTRL_C, CTRL_Z, CTRL_S, CTRL_Q = b"\x03", b"\x1a", b"\x13", b"\x11"
STOPPED = 3.0  # seconds for which a terminal takes nothing: longer than the script runs


class Terminal:
    """A program under a terminal of its own."""

    def __init__(self, scene: Scene, words: Sequence[str]) -> None:
        """Start it."""
        self.text = b""
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(scene.home)
                os.execvpe(words[0], list(words), scene.env | {"TERM": "xterm-256color"})  # noqa: S606 - on its terminal
            finally:
                os._exit(127)

    def type(self, keys: bytes) -> None:
        """Type keys."""
        os.write(self._terminal, keys)

    def resize(self, columns: int, rows: int) -> None:
        """Give it another size, as a window that is drawn larger does."""
        termios.tcsetwinsize(self._terminal, (rows, columns))

    def shows(self, words: bytes, seconds: float = LONGEST) -> bool:
        """Read until `words` are shown; return whether they are."""
        end = time.monotonic() + seconds
        while words not in self.text and time.monotonic() < end:
            if not self._read():
                break
        return words in self.text

    def _read(self) -> bool:
        """Read what is there; return whether more can come."""
        if not select.select([self._terminal], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # Linux: the last process has closed it
            return False
        self.text += data
        return bool(data)

    def ended(self, seconds: float = LONGEST) -> int | None:
        """Read to the end; return the exit code, None if it does not end in time.  Nothing of it stays."""
        end, status = time.monotonic() + seconds, None
        while status is None and time.monotonic() < end:
            self._read()
            found, code = os.waitpid(self.pid, os.WNOHANG)
            status = code if found else None
        if status is None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        else:
            while select.select([self._terminal], [], [], 0.2)[0] and self._read():
                pass
        os.close(self._terminal)
        return None if status is None else os.waitstatus_to_exitcode(status)

    def is_stopped(self, seconds: float = 10.0) -> bool:
        """Return whether Ctrl-Z stopped it in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._read()
            found, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if found:
                return os.WIFSTOPPED(status)
        return False


def checks(scene: Scene) -> Iterator[Row]:
    """Make all checks of a terminal."""
    yield _same(scene, "bytes on a terminal", "shows", SHOWS, "a script's output reaches the terminal unchanged")
    yield _same(scene, "all bytes", "bytes", ALL_BYTES, "each byte reaches the terminal, also what is no text")
    yield _same(scene, "colours", "colours", COLOURS, "a script sees the same terminal, and its colours arrive")
    yield _resize(scene)
    yield _held(scene)
    yield _interrupt(scene)
    yield _stop(scene)
    yield _closed_pipe(scene)


def _guarded(scene: Scene, name: str, source: str) -> list[str]:
    script = scene.home / f"{name}.py"
    script.write_text(source)
    return [sys.executable, "-P", "-m", "stallguard", "run", "--quiet", "--python", sys.executable,
            "--set", "notify.desktop=off", str(script)]  # fmt: skip


def _same(scene: Scene, check: str, name: str, source: str, means: str) -> Row:
    words = _guarded(scene, name, source)
    alone, guarded = Terminal(scene, [sys.executable, words[-1]]), Terminal(scene, words)
    codes = alone.ended(), guarded.ended()
    return judged(check, guarded.text == alone.text and codes == (0, 0),
                  f"{len(alone.text)} bytes alone, {len(guarded.text)} guarded, exit codes {codes}", means)  # fmt: skip


def _resize(scene: Scene) -> Row:
    enough = scene.home / "resized"
    terminal = Terminal(scene, [*_guarded(scene, "resizes", RESIZES), str(enough)])
    ready = terminal.shows(b"ready")
    terminal.resize(132, 43)
    seen = terminal.shows(b"now 132x43", 10.0)
    enough.touch()
    code = terminal.ended()
    return judged("resize", ready and seen and code == 0, f"seen: {seen}, exit code {code}",
                  "a script learns of the window's new size")  # fmt: skip


def _held(scene: Scene) -> Row:
    """Stop the terminal with Ctrl-S until the script has ended: nothing of its last lines must be lost."""
    terminal = Terminal(scene, _guarded(scene, "last", LAST_LINES))
    ready = terminal.shows(b"ready")
    terminal.type(CTRL_S)
    time.sleep(STOPPED)
    terminal.type(CTRL_Q)
    code = terminal.ended()
    lines = terminal.text.decode(errors="replace").splitlines()
    wanted = [*(f"line {number}" for number in range(500)), "the last line"]
    return judged("Ctrl-S at the end", ready and code == 0 and lines[-len(wanted):] == wanted,
                  f"{len(lines)} lines of {len(wanted) + 1}, exit code {code}",
                  "what a stopped terminal did not take is shown when it goes on",
                  "the last lines are lost if the terminal is stopped")  # fmt: skip


def _interrupt(scene: Scene) -> Row:
    terminal = Terminal(scene, _guarded(scene, "waits", WAITS))
    ready = terminal.shows(b"ready")
    terminal.type(CTRL_C)
    received = terminal.shows(b"interrupted", 15.0)
    code = terminal.ended()
    return judged("Ctrl-C", ready and received and code == OWN, f"received: {received}, exit code {code}",
                  "Ctrl-C reaches the script, and its exit code comes back")  # fmt: skip


def _stop(scene: Scene) -> Row:
    terminal = Terminal(scene, _guarded(scene, "steps", STEPS))
    ready = terminal.shows(b"ready")
    terminal.type(CTRL_Z)
    stopped = terminal.is_stopped()
    os.killpg(terminal.pid, signal.SIGCONT)
    code = terminal.ended()
    done = b"all steps" in terminal.text
    return judged("Ctrl-Z", ready and stopped and done and code == 0,
                  f"stopped: {stopped}, went on: {done}, exit code {code}",
                  "Ctrl-Z stops the script with stallguard, and `fg` lets both go on")  # fmt: skip


def _closed_pipe(scene: Scene) -> Row:
    words = _guarded(scene, "pipe", STEPS.replace("0.05", "0.01"))
    seen = []
    for command in ([sys.executable, words[-1]], words):
        quoted = " ".join(f"'{word}'" for word in command)
        terminal = Terminal(scene, ["/bin/sh", "-c", f"{quoted} | head -1"])
        code = terminal.ended()
        seen.append((code, terminal.text.decode(errors="replace")))
    alone, guarded = seen
    return judged("a pipe that closes", guarded == alone, f"exit code {guarded[0]}, {alone[0]} without stallguard",
                  "`| head -1` ends as without stallguard", guarded[1][-200:])  # fmt: skip

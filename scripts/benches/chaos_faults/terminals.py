"""Terminals, sessions and clocks: a hang-up, a logout, keys, a reader that goes, a wall clock that steps."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from .fault import row
from .stage import BATCHES, SHARP, Live, Stage, expect, until, whole

# Starts a command as the leader of a session whose terminal is its standard input.
ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
# Also if this was started with SIGHUP ignored.
signal.signal(signal.SIGHUP, signal.SIG_IGN if sys.argv[1] == "nohup" else signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""
TO_A_FILE = """
import os, sys, time, stallguard
file = open("log", "w")
for number in range(int(sys.argv[1])):
    stallguard.beat()
    print("step", number, file=file, flush=True)
    time.sleep(0.05)
open("end", "w").write("whole")
"""


class OnTerminal:
    """A command on a pseudo-terminal of its own; `master` is our side."""

    def __init__(self, stage: Stage, command: Sequence[str], how: str = "") -> None:
        self.master, slave = os.openpty()
        words = [sys.executable, "-c", ON_A_TERMINAL, how or "plain", *command]
        self.live = stage.start(words, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        os.set_blocking(self.master, False)
        self.text = b""

    def read(self) -> bytes:
        with contextlib.suppress(OSError):  # nothing more for now, or the end of it
            while data := os.read(self.master, 1 << 16):
                self.text += data
        return self.text

    def shows(self, words: bytes) -> None:
        until(lambda: words in self.read(), f"{words!r} on the terminal: {self.text[-300:]!r}")

    def types(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def ended(self) -> int:
        until(lambda: (self.read(), self.live.process.poll() is not None)[1], "its end")
        return self.live.process.returncode

    def hang_up(self) -> None:
        os.close(self.master)
        self.master = -1


@contextlib.contextmanager
def terminal(stage: Stage, command: Sequence[str], how: str = "") -> Iterator[OnTerminal]:
    """Start a command on a terminal, which is closed after the block."""
    made = OnTerminal(stage, command, how)
    try:
        yield made
    finally:
        if made.master >= 0:
            os.close(made.master)


def _batches(stage: Stage, count: int, *options: str) -> list[str]:
    return stage.guarding([stage.script(BATCHES), str(count), "0.05"], options)


@row()
def terminal_hang_up(stage: Stage) -> str:
    """the terminal of a run is closed -> the training ends by SIGHUP as without stallguard (129); no orphan"""
    with terminal(stage, _batches(stage, 9000)) as screen:
        screen.shows(b"step 10")
        training = stage.run(wait=True)
        screen.hang_up()
        code = screen.live.ended().code
    expect(code in (129, 143), f"exit code {code}")
    until(lambda: not stage.living(), "the end of all processes")
    return f"exit code {code}, run {'over' if training.path.exists() else ''}"


@row()
def terminal_hang_up_nohup(stage: Stage) -> str:
    """the terminal of a run is closed that was started with SIGHUP ignored (nohup) ->
    the training goes on to its end, as without stallguard"""
    command = stage.guarding([stage.script(TO_A_FILE), "60"])
    with terminal(stage, command, "nohup") as screen:
        until((stage.work / "log").exists, "the first batch")
        screen.hang_up()
        code = screen.live.ended().code
    expect(code == 0, f"exit code {code}")
    expect((stage.work / "end").exists(), "the training did not end")
    return "60 batches to their end, exit code 0"


@row()
def logout(stage: Stage) -> str:
    """SIGHUP to the session of a shell that runs stallguard -> stallguard and the training end; no orphan"""
    script = stage.script(BATCHES)
    command = " ".join(stage.guarding([script, "9000", "0.05"]))
    heard = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); os.execvp('sh', sys.argv[1:])"
    words = [sys.executable, "-c", heard, "sh", "-c", f"{command}; exit $?"]
    live = stage.start(words, start_new_session=True)
    live.reached(5)
    os.killpg(live.pid, signal.SIGHUP)
    live.ended()
    until(lambda: not stage.living(), "the end of all processes")
    expect(stage.outcome().code in (129, 143), f"outcome {stage.outcome().code}")
    return f"outcome {stage.outcome().code}, nothing left"


@row()
def ctrl_z(stage: Stage) -> str:
    """Ctrl-Z on the terminal of a run, 4 s later SIGCONT ->
    training and stallguard stand still, then go on; nothing is judged; own exit code"""
    with terminal(stage, _batches(stage, 60, *SHARP)) as screen:
        screen.shows(b"step 20")
        training = screen.live.training()
        screen.types(b"\x1a")
        until(lambda: training.status() == psutil.STATUS_STOPPED, "that the training is stopped")
        time.sleep(0.5)
        before = len(screen.read())
        time.sleep(3.5)
        still = len(screen.read()) - before
        screen.live.signal(signal.SIGCONT)
        code = screen.ended()
        text = screen.read()
    expect(still == 0, "it went on")
    expect((code, text.count(b"step")) == (7, 60), f"exit code {code}, {text.count(b'step')} lines")
    expect(not stage.events("training.stalled"), "it was judged to be stalled")
    return "stood still, then 60 batches, exit code 7"


@row()
def ctrl_s(stage: Stage) -> str:
    """Ctrl-S on the terminal of a run for 8 s: it takes no output, and the training fills what is in between ->
    the training is not judged; all its output arrives; own exit code"""
    text = BATCHES.replace("flush", '"x" * 3000, flush')
    with terminal(stage, stage.guarding([stage.script(text), "80", "0.05"], SHARP)) as screen:
        screen.shows(b"step 20")
        screen.types(b"\x13")
        time.sleep(8)
        screen.types(b"\x11")
        code = screen.ended()
        text = screen.read().decode()
    expect((code, text.count("step")) == (7, 80), f"exit code {code}, {text.count('step')} lines")
    expect(not stage.events("training.stalled"), "it was judged to be stalled")
    return "80 batches, exit code 7"


@row()
def ctrl_c(stage: Stage) -> str:
    """Ctrl-C on the terminal of a run -> one KeyboardInterrupt in the training, its own exit code"""
    # Short sleeps: one long sleep can begin after the signal and before its handler.
    loop = "print('ready', flush=True)\n    while True: time.sleep(0.01)"
    text = f"import time\ntry:\n    {loop}\nexcept KeyboardInterrupt:\n    exit(5)"
    with terminal(stage, stage.guarding([stage.script(text)])) as screen:
        screen.shows(b"ready")
        screen.types(b"\x03")
        code = screen.ended()
    expect(code == 5, f"exit code {code}: {screen.text[-300:]!r}")
    return "exit code 5"


@row()
def terminal_is_one(stage: Stage) -> str:
    """a training on a terminal asks for its size, its kind and a line of input ->
    the same answers as without stallguard"""
    text = "import os, sys\nprint([os.isatty(n) for n in range(3)], os.get_terminal_size(), input('? '))\nsys.exit(7)"
    seen = []
    for command in ([sys.executable, stage.script(text)], stage.guarding([stage.script(text)], ("--quiet",))):
        with terminal(stage, command) as screen:
            screen.shows(b"? ")
            screen.types(b"answer\n")
            code = screen.ended()
            seen.append((code, screen.read().replace(b"\r", b"")))
    expect(seen[0] == seen[1], f"{seen[1]}, without stallguard {seen[0]}")
    return f"same answers, exit code {seen[1][0]}"


@row()
def reader_gone(stage: Stage) -> str:
    """the reader of a run's output closes its end after the first line (| head -n 1) ->
    the training meets the broken pipe as without stallguard: same exit code"""
    script = stage.script(BATCHES)
    codes = []
    for command in ([sys.executable, script, "200", "0.02"], stage.guarding([script, "200", "0.02"])):
        live = stage.start(command, stdout=subprocess.PIPE)
        live.pipe.readline()
        live.pipe.close()
        codes.append(live.ended().code)
    expect(codes[0] == codes[1], f"exit code {codes[1]}, without stallguard {codes[0]}")
    return f"exit code {codes[1]}, as without"


@row()
def reader_slow(stage: Stage) -> str:
    """the reader of a run's output takes nothing for 8 s while 4 MB are printed ->
    the training waits as without stallguard, is not judged; every byte arrives"""
    text = BATCHES.replace('print("step", number, flush=True)', 'print("x" * 99999, flush=True)')
    live = stage.guard(stage.script(text), "40", "0", options=SHARP, stdout=subprocess.PIPE)
    pipe = live.pipe
    live.training()
    time.sleep(8)
    data = pipe.read()
    pipe.close()
    ended = live.ended()
    expect((ended.code, len(data)) == (7, 4_000_000), f"exit code {ended.code}, {len(data)} bytes")
    expect(not stage.events("training.stalled"), "it was judged to be stalled")
    return "4000000 bytes, exit code 7"


STEPS = """
import datetime, sys, time
from stallguard.cli import main
began, wall, real = time.monotonic(), time.time, datetime.datetime
def by():
    return {by} if time.monotonic() - began > 1.5 else 0
time.time = lambda: wall() + by()
class Stepped(real):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=by())
datetime.datetime = Stepped
main()
"""


def _stepped(stage: Stage, by: int) -> Live:
    command = [sys.executable, "-c", STEPS.format(by=by), "run", "--max-time", "30m", "--python", sys.executable]
    return stage.start([*command, stage.script(BATCHES), "80", "0.05"])


@row()
def clock_steps(stage: Stage) -> str:
    """the wall clock steps by an hour, forward and back (a stand-in: stallguard's own clock functions step) ->
    nothing is ended by it (--max-time 30m), the run answers; own code and output"""
    for by in (3600, -3600):
        live = _stepped(stage, by)
        live.training()
        live.reached(60)
        expect(stage.ask("status") is not None, "the run does not answer")
        seen = whole(live.ended(), 80)
        expect(not stage.events("training.suspected"), "it was suspected")
        expect(not stage.events("run.end_is_due"), "it was asked to end")
    return f"{seen}, both ways"


@row()
def no_temporary_directory(stage: Stage) -> str:
    """TMPDIR leads nowhere and HOME is not set -> output and exit code of the training"""
    env = {"TMPDIR": "/nowhere/at/all", "HOME": str(Path("/nowhere"))}
    return whole(stage.guard(stage.script(BATCHES), "10", "0.02", env=env).ended(), 10)

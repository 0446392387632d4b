"""How the Mac is asked: by programs, each with a deadline, whose words are kept; and what the walk leaves, removed.

Must not judge an answer.
"""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from mac import pairs
from mac.recordings import Recording

ROOT = Path(__file__).resolve().parents[3]

POLL = 0.25  # seconds between two looks
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Said(NamedTuple):
    """An answer.  `code`: 124 if it did not end in time, 127 if there is no such program."""

    code: int
    text: str
    seconds: float


Ask = Callable[[str], bool | None]
Run = Callable[[Sequence[str], float, Mapping[str, str], Path], Said]


def run(words: Sequence[str], seconds: float, env: Mapping[str, str], cwd: Path) -> Said:
    """Run a program in `cwd` for at most `seconds`; both of its outputs are one text."""
    began = time.monotonic()
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=dict(env),
            text=True, errors="replace", timeout=seconds, check=False, cwd=cwd,
        )  # fmt: skip
        code, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired:
        code, text = 124, f"no answer within {seconds:g} s"
    except OSError as error:
        code, text = 127, str(error)
    return Said(code, text, time.monotonic() - began)


def no_answer(_question: str) -> None:
    """Answer nothing: no user is there."""


class Scene:
    """What the checks work with.  `home`: a directory of the walk's own; `say`: to the user, a line."""

    def __init__(
        self,
        home: Path,
        env: Mapping[str, str],
        say: Callable[[str], None],
        run: Run = run,
        ask: Ask = no_answer,
        place: Path | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`env`: of everything that is started; `ask`: puts a question to the user; None: no answer came.

        `place`: a directory for what a later walk ends; `now`: seconds since the epoch.
        """
        self.place, self.now = place or home / "live", now
        self.home, self.env, self.say, self.ask, self._run = home, dict(env), say, ask, run
        self.recordings: dict[str, Recording] = {}
        self.words: list[Recording] = []  # of stallguard itself
        self.tracebacks: list[str] = []
        self.files: dict[str, str] = {}  # more to keep, by name
        self.uid = os.getuid()
        # For the checks of Metal: interpreters by their pair, "tensorflow 2.18.1 + tensorflow-metal 1.2.0".
        self.metal_pythons = pairs.metal_pythons(ROOT, Path(sys.executable))

    def keeping(self, kept: Path, home: Path) -> Scene:
        """Return this with another home of stallguard, and of files; what is said is kept in the same places."""
        other = copy.copy(self)
        other.env, other.home = self.env | {"STALLGUARD_HOME": str(kept)}, home
        return other

    @property
    def kept(self) -> Path:
        """The home of stallguard in all that is started."""
        return Path(self.env["STALLGUARD_HOME"])

    @property
    def domain(self) -> str:
        """The user's graphical session, for launchctl."""
        return f"gui/{self.uid}"

    def tool(self, name: str, *words: str, seconds: float = 30.0) -> Said:
        """Run a tool and keep what it said as `name`.txt; a later answer of that name takes its place."""
        plain = self.env | {"LC_ALL": "C", "COLUMNS": "500"}  # other locales print 1,5 for 1.5
        said = self._run(words, seconds, plain, self.home)
        self.recordings[name] = Recording(f"{name}.txt", " ".join(words), said.code, said.seconds, said.text)
        return said

    def stallguard(self, *words: str, seconds: float = 120.0) -> Said:
        """Run a verb of stallguard; what it says is kept apart from what the tools say."""
        said = self._run((sys.executable, "-P", "-m", "stallguard", *words), seconds, self.env, self.home)
        name = f"{len(self.words) + 1:03}-{'-'.join(words[:2]).replace('/', '-')[:40]}.txt"
        command = " ".join(("stallguard", *words))
        self.words.append(Recording(name, command, said.code, said.seconds, said.text))
        return said

    def launchctl(self, *words: str, name: str = "") -> Said:
        """Ask launchctl; kept where it is given a name."""
        said = self.tool(name or "launchctl", "launchctl", *words)
        if not name:
            del self.recordings["launchctl"]
        return said


def until(true: Callable[[], object], seconds: float) -> bool:
    """Return whether `true` came true within `seconds`."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(POLL)
    return True


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Have an order to end come as KeyboardInterrupt, so that everything is removed on the way out."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = [signal.signal(number, stop) for number in STOPS]
    try:
        yield
    finally:
        for number, how in zip(STOPS, before, strict=True):
            signal.signal(number, how)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let nothing interrupt the removal of what was installed."""
    before = [signal.signal(number, signal.SIG_IGN) for number in STOPS]
    try:
        yield
    finally:
        for number, how in zip(STOPS, before, strict=True):
            signal.signal(number, how)

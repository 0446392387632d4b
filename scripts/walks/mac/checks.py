"""The checks of the walk, in order: what cannot be noticed first.

Each says in a line what it does, and what its user may notice.
"""

from __future__ import annotations

import platform
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from mac import (
    files,
    frameworks,
    gpu,
    jobs,
    kernel,
    longer,
    machine,
    metal_exact,
    metal_wait,
    night,
    orphans,
    shortage,
    sockets,
    steps,
    terminal,
)
from mac.scene import Scene
from mac.table import FAILED, UNASKED, Row, unknown

MAC, APPLE, ANYWHERE = "a Mac", "a Mac with Apple silicon", ""


class Check(NamedTuple):
    """One check.

    `notice`: what a user at the machine can notice of it; "" if there is nothing.  `needs`: where it can be made.
    `seconds`: what it takes on a Mac, estimated.  `asks`: what it takes or does that a user must agree to first.
    """

    name: str
    says: str
    do: Callable[[Scene], Iterator[Row]]
    notice: str = ""
    needs: str = MAC
    seconds: int = 5
    asks: str = ""


AGAIN = "the same message again"
CHECKS = (
    Check("gpu", "read the GPU without root", gpu.rest, needs=APPLE),
    Check("memory", "read memory pressure, swap and the compressor", machine.memory),
    Check("footprint", "compare the memory that we read of a process with `footprint`", machine.footprint),
    Check("heat", "read heat, source of power and lid", machine.surroundings),
    Check("thermal", "compare thermal pressure with `pmset -g therm`", machine.pressure),
    Check("sleep", "compare our clock with the sleeps that the kernel remembers", machine.sleep, seconds=10),
    Check("processes", "read a child's threads, kill it, and learn how it ended", machine.processes),
    Check("kqueue", "wait for a process, a dead pid, a zombie, and a pid that is another's now", kernel.ends,
          needs=ANYWHERE),
    Check("bursts", "send 200 records a second to a reader that pauses; count what is lost", kernel.bursts,
          needs=ANYWHERE, seconds=25),
    Check("files", "create, rename and overwrite checkpoints: does the files sensor notice?", files.checks,
          needs=ANYWHERE, seconds=20),
    Check("disk", "sync 20 MB in each of the three ways that macOS has, and time them", files.disk_order),
    Check("sockets", "look where control sockets are, and how old temporary files get here", sockets.checks,
          needs=ANYWHERE),
    Check("terminal", "run a script under a terminal: bytes, colours, size, Ctrl-C, -S, -Z, a pipe that closes",
          terminal.checks, needs=ANYWHERE, seconds=30),
    Check("pythons", "run a script with each Python that is here: does the probe connect?", machine.probes,
          needs=ANYWHERE, seconds=20),
    Check("orphan", "kill stallguard, let its training end, and ask for the exit code", orphans.checks,
          needs=ANYWHERE, seconds=10),
    Check("frameworks", "run loops of MLX and of PyTorch, with and without beat(), if they are installed",
          frameworks.checks, "some seconds of a busy GPU", ANYWHERE, 60),
    Check("samples", "sample an idle process of each Python that is here", machine.samples, seconds=15),
    Check("evidence", "run each tool of an evidence bundle once on an idle process", machine.evidence,
          "up to two minutes; the unified log is read for GPU restarts of the last minutes", seconds=60),
    Check("work", "train on the GPU, watch its counters, ask for stacks", gpu.work,
          "two minutes of a busy GPU and perhaps the fan", APPLE, seconds=120),
    Check("steps", "guard a training on the GPU: a dump, a step of three minutes, a step that never ends",
          steps.checks, "four minutes of a busy GPU; then lines in this window", APPLE, seconds=270),
    Check("metal-resume", "kill a fit on the GPU and resume it, five times; compare its weights to the bit",
          metal_exact.resume, "some minutes of a GPU at work", APPLE, seconds=340),
    Check("metal-slices", "train batches on the GPU whole and in slices; compare weights and memory",
          metal_exact.slices, "two minutes of a busy GPU", APPLE, seconds=120),
    Check("shared-gpu", "guard a training while another process saturates the GPU, and block it then",
          shortage.shared, "two minutes of a busy GPU", APPLE, 115),
    Check("short-memory", "guard a training while macOS says that memory is short: it needs root, else it is left out",
          shortage.memory, "for 25 seconds, programs may give up their caches", seconds=35),
    Check("job", "install a job, replace it, kill stallguard under it, let it finish, stop it, remove it", night.job,
          'macOS says "Background Items Added"; everything is removed again', seconds=100),
    Check("bootout", "kill stallguard under a job, and have launchd end the job", jobs.bootout, AGAIN, seconds=40),
    Check("hour", "install a job whose hour is two minutes away; look at its environment", jobs.hour, AGAIN,
          ANYWHERE, seconds=140),
    Check("ssh", "install a job over ssh to this machine, if it lets you in without a password", jobs.ssh, AGAIN,
          seconds=15),
    Check("answers", "ask launchd for its default time to end, and about a label that is switched off", night.answers,
          AGAIN, seconds=20),
    Check("agent-gpu", "train on the GPU under launchd for a few batches", night.gpu, AGAIN, APPLE, seconds=45),
    Check("caffeinate", "hold the Mac awake for a moment and look whether macOS lists it", machine.caffeinate),
    Check("guarded", "look whether a job may list ~/Documents; its names are not kept", night.guarded,
          "macOS may ask whether `ls` may look into Documents: refuse", seconds=15),
    Check("notification", "send one notification, and ask whether you saw it", machine.desktop_notification,
          "a notification of Script Editor, and a question", seconds=20),
    Check("doctor", "have stallguard's doctor compute on the GPU with each pair", machine.doctor, needs=APPLE,
          seconds=80),
    Check("drill", "rehearse a stall with a small training", machine.drill, "some minutes of a training",
          ANYWHERE, seconds=90),
    Check("tests", "run the tests of tests/live, without the drill", machine.live_tests, "a minute more of all that",
          seconds=60),
    Check("metal-wait", "have a step wait in Metal without end: is it found, named and ended; does the GPU go on?",
          metal_wait.checks, "a picture that stands still for a moment", APPLE, 240,
          "a program waits for an event of the GPU that never comes, and is ended after two minutes; should the GPU "
          "not compute afterwards, the Mac needs a restart: save your work"),
    Check("suite", "run the whole suite without the Metal plug-in", machine.suite, "up to half an hour of work",
          ANYWHERE, 1800, "the whole test suite takes up to half an hour more"),
)  # fmt: skip


# By options of their own; the last two end in a later walk.
LONGER = (
    Check("sleep-a-minute", "put the Mac to sleep under a guarded training; you wake it", longer.sleep, seconds=150,
          asks="the Mac sleeps for as long as you let it: save your work, wait a minute, press a key"),
    Check("scheduled-night", "put the Mac to sleep; a schedule wakes it, and a job starts", longer.scheduled,
          seconds=240, asks="the Mac sleeps for two minutes and wakes by itself; save your work, and leave it alone; "
          "`sudo -v` before lets it set the wake"),
    Check("logout", "leave a job with an adopted training, and look at it after a logout", longer.logout, seconds=40,
          asks="a job stays until you have logged out and in and called scripts/live again"),
    Check("three-days", "leave a nightly job and a long run for three days", longer.days, needs=ANYWHERE, seconds=20,
          asks="two jobs stay for three days, until scripts/live is called again; --clean removes them"),
)  # fmt: skip


def longer_ones(asked: Collection[str], begun: Collection[str]) -> list[Check]:
    """Return the longer checks that are asked for or begun; what is begun has been agreed to."""
    wanted = (check for check in LONGER if check.name in (*asked, *begun))
    return [check._replace(asks="") if check.name in begun else check for check in wanted]


def unattended(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Return those that need no GPU, and of which no user notices anything."""
    return tuple(check for check in checks if not check.notice and check.needs != APPLE)


def chosen(only: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks of these names, in order; all if none is named.  Raises ValueError."""
    unknown = sorted(set(only) - {check.name for check in CHECKS})
    if unknown:
        raise ValueError(f"no check {', '.join(unknown)}; there are: {', '.join(check.name for check in CHECKS)}")
    return tuple(check for check in CHECKS if not only or check.name in only)


def estimate(checks: Sequence[Check], here: str) -> int:
    """Return the minutes that the checks which can be made here take."""
    seconds = sum(check.seconds for check in checks if fits(check.needs, here))
    return max(1, round(seconds / 60))


def agreed(checks: Sequence[Check], ask: Callable[[str], bool | None], here: str) -> tuple[list[Check], list[Row]]:
    """Ask for all that takes longer before anything is done; return what is left, and a row for each of the others."""
    left, rows = [], []
    for check in checks:
        answer = ask(f"{check.name}: {check.asks}. Do it?") if check.asks and fits(check.needs, here) else True
        if answer:
            left.append(check)
        else:
            why = "you said no" if answer is False else "no user at a terminal agreed; --yes agrees"
            rows.append(unknown(check.name, f"{why}: {check.asks}"))
    return left, rows


def place() -> str:
    """Return which checks can be made here: APPLE, MAC, or ANYWHERE."""
    if sys.platform != "darwin":
        return ANYWHERE
    return APPLE if platform.machine() == "arm64" else MAC


def fits(needs: str, here: str) -> bool:
    """Return whether a check that needs this can be made here."""
    order = (ANYWHERE, MAC, APPLE)
    return order.index(needs) <= order.index(here)


def walk(scene: Scene, checks: Sequence[Check], pause: Callable[[], None], here: str = APPLE) -> list[Row]:
    """Make the checks; return their rows.  `pause`: before each that may be noticed.  An interruption ends it."""
    rows: list[Row] = []
    for number, check in enumerate(checks, start=1):
        if not fits(check.needs, here):
            rows.append(Row(check.name, UNASKED, means=f"needs {check.needs}"))
            continue
        scene.say(f"{number}/{len(checks)}  {check.name}: {check.says}")
        try:
            if check.notice:
                scene.say(f"      you may notice: {check.notice}")
                pause()
            began = time.monotonic()
            for row in check.do(scene):
                rows.append(row._replace(seconds=round(time.monotonic() - began, 2)))
                began = time.monotonic()
        except KeyboardInterrupt:
            rest = checks[number - 1 :]
            return rows + [Row(left.name, UNASKED, means="interrupted by you") for left in rest]
        except Exception as error:  # noqa: BLE001 - one that fails must not hide the others
            rows.append(Row(check.name, FAILED, type(error).__name__, str(error)))
            scene.tracebacks.append(f"{check.name}\n{traceback.format_exc()}")
    return rows
